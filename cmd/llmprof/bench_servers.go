package main

import (
	"context"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/llmprof/llmprof/load"
	"github.com/llmprof/llmprof/load/metrics"
	"github.com/llmprof/llmprof/report"
)

// benchServers are the servers of a run, whose metrics are read meanwhile: each
// of them once, however many of the targets it is.
type benchServers struct {
	urls     []string
	group    metrics.Group
	warnings []string
}

// watch follows the servers' metrics, as far as they publish any, and reads them
// about every interval.
func (a *app) watch(ctx context.Context, targets []load.Target, f *benchFlags, every time.Duration) benchServers {
	var s benchServers
	if f.noMetrics {
		return s
	}
	var hosts []string
	for _, t := range targets {
		host := hostOf(t.URL)
		if slices.Contains(hosts, host) {
			continue
		}
		hosts, s.urls = append(hosts, host), append(s.urls, t.URL)
		server, err := metricsOf(t)
		var w *metrics.Watcher
		if err == nil {
			w, err = metrics.Watch(context.WithoutCancel(ctx), server, every)
		}
		if err != nil {
			s.warnings = append(s.warnings, "the server's own metrics are not read: "+err.Error())
			a.log().Info(s.warnings[len(s.warnings)-1])
		}
		s.group = append(s.group, w)
	}
	if s.group.Followed() && slices.Contains(s.group, nil) {
		s.warnings = append(s.warnings, "not every server tells its metrics, so that there are no sums of them")
	}
	return s
}

// hostOf is what tells a server from another one: scheme, host and port.
func hostOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return address
	}
	host := strings.ToLower(u.Hostname())
	if ip := net.ParseIP(host); host == "localhost" || ip != nil && ip.IsLoopback() {
		host = "localhost"
	}
	return strings.ToLower(u.Scheme) + "://" + net.JoinHostPort(host, u.Port())
}

// metricsOf is where a target publishes its metrics, asked as the target is.
func metricsOf(t load.Target) (metrics.Server, error) {
	client, header, err := t.HTTP()
	return metrics.Server{URL: t.URL, Header: header, Client: client}, err
}

// serverWindows are the servers' figures of both windows.
type serverWindows []report.BenchServer

// windows are what each server says of a run.
func (s benchServers) windows(r *load.Result, steady load.Summary) serverWindows {
	at := func(seconds float64) time.Time { return r.Started.Add(time.Duration(seconds * float64(time.Second))) }
	var out serverWindows
	for i, w := range s.group {
		one := report.BenchServer{URL: s.urls[i]}
		if w != nil {
			if window, ok := w.Between(r.Started, r.Started.Add(r.Elapsed)); ok {
				one.Whole = &window
			}
			if window, ok := w.Within(at(steady.From), at(steady.To)); ok {
				one.Steady = &window
			}
		}
		out = append(out, one)
	}
	return out
}

// together are the figures of all servers.
func (s serverWindows) together() (whole, steady *metrics.Window) {
	var wholes, steadies []*metrics.Window
	for _, one := range s {
		wholes, steadies = append(wholes, one.Whole), append(steadies, one.Steady)
	}
	return metrics.Sum(wholes), metrics.Sum(steadies)
}

// releases are those of the servers, each once.
func releases(facts []load.Facts) string {
	var out []string
	for _, f := range facts {
		if f.Version != "" && !slices.Contains(out, f.Version) {
			out = append(out, f.Version)
		}
	}
	return strings.Join(out, ", ")
}
