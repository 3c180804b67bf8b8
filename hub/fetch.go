package hub

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// maxRedirects is the longest chain of redirects that is followed.
const maxRedirects = 5

// endpoint parses the hub's address.
func (c *Client) endpoint() (*url.URL, error) {
	text := c.Endpoint
	if text == "" {
		text = DefaultEndpoint
	}
	u, err := url.Parse(strings.TrimRight(text, "/"))
	if err != nil || u.Host == "" || (u.Scheme != "https" && u.Scheme != "http") {
		// The parser's own message would repeat credentials in the address.
		return nil, &RefError{Ref: c.shownEndpoint(), Problem: "the hub's address (HF_ENDPOINT) is no http or https address"}
	}
	return u, nil
}

// shownEndpoint is the hub's address without credentials.
func (c *Client) shownEndpoint() string {
	text := strings.TrimRight(c.Endpoint, "/")
	if text == "" {
		return DefaultEndpoint
	}
	if scheme, rest, ok := strings.Cut(text, "://"); ok {
		if i := strings.LastIndex(rest, "@"); i >= 0 {
			return scheme + "://" + rest[i+1:]
		}
		return text
	}
	if i := strings.LastIndex(text, "@"); i >= 0 {
		return text[i+1:]
	}
	return text
}

// fromHub reads the files from the network, or from llmprof's own cache where
// the hub says that it is current, where it cannot be reached, or offline.
// nil means: offline and in no cache.
func (c *Client) fromHub(ctx context.Context, repo repository) (*found, error) {
	files := &found{origin: "hub: " + repo.id + "@" + repo.revision}
	config, err := c.file(ctx, repo, configFile, "", files)
	if err != nil {
		return nil, err
	}
	if config == nil {
		return nil, nil
	}
	if config.Absent {
		return nil, &AccessError{Reason: MissingFile, ID: repo.id, Revision: repo.revision, File: configFile, Endpoint: c.shownEndpoint()}
	}
	files.config, files.commit = config.Body, config.Commit
	// Only ModelOpt describes its quantisation in a file of its own. The
	// architecture does not hang on it.
	if !strings.Contains(string(config.Body), `"quantization_config"`) {
		quant, err := c.file(ctx, repo, quantFile, config.Commit, files)
		switch {
		case err != nil && ctx.Err() != nil:
			return nil, err
		case err != nil:
			files.warnings = append(files.warnings, "whether the weights are quantised is not known: "+err.Error())
		case quant != nil && !quant.Absent:
			files.quant = quant.Body
		}
	}
	return files, c.fetchCheckpoint(ctx, repo, files)
}

// file gets one file of a repository. A cached one is revalidated, unless it
// is of the given commit. nil means: offline and not cached.
func (c *Client) file(ctx context.Context, repo repository, name, commit string, files *found) (*entry, error) {
	old, err := c.cached(repo, name)
	if err != nil {
		if c.Offline {
			return nil, fmt.Errorf("offline, and the cache cannot be read: %w", err)
		}
		files.warnings = append(files.warnings, "fetched anew: "+err.Error())
	}
	if c.Offline || (old != nil && commit != "" && old.Commit == commit) {
		return old, nil
	}
	fresh, err := c.fetch(ctx, repo, name, old)
	if err != nil {
		access, ok := errors.AsType[*AccessError](err)
		if ok && old != nil && ctx.Err() == nil && (access.Reason == Unreachable || access.Reason == RateLimited) {
			files.stale = true
			files.warnings = append(files.warnings, "taken from the cache without asking whether it is current: "+err.Error())
			return old, nil
		}
		return nil, err
	}
	if fresh != old {
		if err := c.store(fresh); err != nil {
			files.warnings = append(files.warnings, err.Error())
		}
	}
	return fresh, nil
}

// fetch asks the hub for a file. It returns old where the hub says that it is
// current, and an absent entry where the repository lacks the file.
func (c *Client) fetch(ctx context.Context, repo repository, name string, old *entry) (*entry, error) {
	base, err := c.endpoint()
	if err != nil {
		return nil, err
	}
	timeout := c.Timeout
	if timeout <= 0 {
		timeout = DefaultTimeout
	}
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	fault := &AccessError{ID: repo.id, Revision: repo.revision, File: name, Endpoint: c.shownEndpoint(), SentToken: c.Token != ""}
	span := ""
	if name == weightsFile {
		span = "bytes=0-7"
	}
	response, commit, err := c.get(limited, base, repo, name, old, span)
	if err != nil {
		return nil, c.lost(ctx, limited, fault, err)
	}
	defer response.Body.Close()
	fresh := &entry{ID: repo.id, Revision: repo.revision, File: name, ETag: response.Header.Get("ETag"), Commit: commit}
	if !validETag(fresh.ETag) {
		fresh.ETag = ""
	}
	if response.StatusCode == http.StatusNotModified && old != nil {
		if commit != "" && commit != old.Commit {
			moved := *old
			moved.Commit = commit
			return &moved, nil
		}
		return old, nil
	}
	switch {
	case response.StatusCode == http.StatusPartialContent && span != "":
		fresh.Body, err = c.header(limited, base, repo, response.Body)
	case response.StatusCode == http.StatusOK && span != "":
		return fresh, nil // no ranges here, and nobody wants the weights
	case response.StatusCode == http.StatusOK:
		fresh.Body, err = describe(name, response.Body)
	default:
		c.classify(response, fault)
		// A mirror may not give codes; that the repository is there is known
		// by the time its second file is asked for.
		lacking := name != configFile && response.StatusCode == http.StatusNotFound
		if fault.Reason == MissingFile || lacking {
			return &entry{ID: repo.id, Revision: repo.revision, File: name, Commit: commit, Absent: true}, nil
		}
		return nil, fault
	}
	if bad, ok := errors.AsType[*FileError](err); ok {
		fault.Reason, fault.Err = BadAnswer, bad
		return nil, fault
	}
	if err != nil {
		return nil, c.lost(ctx, limited, fault, err)
	}
	return fresh, nil
}

// describe reads the body of a file that describes a model and checks that it
// can be one. Of an index only what the comparison needs is kept.
func describe(name string, body io.Reader) ([]byte, error) {
	limit := MaxConfigBytes
	if name == indexFile {
		limit = maxIndexBytes
	}
	text, err := io.ReadAll(io.LimitReader(body, int64(limit)+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("the answer ended after %d bytes: %w", len(text), err)
	case len(text) > limit:
		return nil, &FileError{File: name, Problem: fmt.Sprintf("the file is longer than %d bytes", limit)}
	case name == indexFile:
		return reduceIndex(name, text)
	}
	_, err = parseObject(name, text)
	return text, err
}

// get sends the request and follows redirects by hand: the token goes to the
// endpoint's own scheme, host and port only. A span asks for a part of the
// file ("bytes=0-7"), "" for all of it. commit is the first one that an answer
// names.
func (c *Client) get(ctx context.Context, base *url.URL, repo repository, name string, old *entry, span string) (response *http.Response, commit string, err error) {
	client := http.Client{}
	if c.HTTP != nil {
		client = *c.HTTP
	}
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	at := base.JoinPath(append(strings.Split(repo.id, "/"), "resolve", url.PathEscape(repo.revision), name)...)
	for range maxRedirects + 1 {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), http.NoBody)
		if err != nil {
			return nil, "", err
		}
		request.Header.Set("User-Agent", "llmprof")
		sameOrigin := at.Scheme == base.Scheme && at.Host == base.Host
		if c.Token != "" && sameOrigin {
			request.Header.Set("Authorization", "Bearer "+c.Token)
		}
		if old != nil && old.ETag != "" && !old.Absent {
			request.Header.Set("If-None-Match", old.ETag)
		}
		if span != "" {
			request.Header.Set("Range", span)
		}
		response, err = client.Do(request)
		if err != nil {
			return nil, "", err
		}
		if commit == "" {
			commit = commitOf(response)
		}
		target := response.Header.Get("Location")
		if response.StatusCode < 300 || response.StatusCode > 399 || response.StatusCode == http.StatusNotModified || target == "" {
			return response, commit, nil
		}
		response.Body.Close()
		next, err := at.Parse(target)
		if err != nil || (next.Scheme != "https" && next.Scheme != "http") || next.Host == "" {
			return nil, "", errors.New("redirected to an address that is neither http nor https")
		}
		if at.Scheme == "https" && next.Scheme == "http" {
			return nil, "", fmt.Errorf("redirected from https to http at %s", next.Host)
		}
		if next.Scheme != base.Scheme || next.Host != base.Host {
			next.User = nil
		}
		at = next
	}
	return nil, "", fmt.Errorf("redirected more than %d times", maxRedirects)
}

// commitOf is the commit that an answer names, if it looks like one.
func commitOf(response *http.Response) string {
	if commit := response.Header.Get("X-Repo-Commit"); validCommit(commit) {
		return commit
	}
	return ""
}

// classify reads the reason of a refusal. The hub names it in X-Error-Code;
// the status alone is not enough: without a token a repository that does not
// exist answers 401.
func (c *Client) classify(response *http.Response, fault *AccessError) {
	fault.Status = response.StatusCode
	switch code := response.Header.Get("X-Error-Code"); {
	case code == "GatedRepo":
		fault.Reason = Gated
	case code == "RepoNotFound":
		fault.Reason = MissingRepo
	case code == "RevisionNotFound":
		fault.Reason = MissingRevision
	case code == "EntryNotFound":
		fault.Reason = MissingFile
	case fault.Status == http.StatusUnauthorized && c.Token != "":
		fault.Reason = Unauthorized
	case fault.Status == http.StatusUnauthorized, fault.Status == http.StatusForbidden:
		fault.Reason = Gated
	case fault.Status == http.StatusNotFound:
		fault.Reason = MissingRepo
	case fault.Status == http.StatusTooManyRequests:
		fault.Reason = RateLimited
	case fault.Status >= http.StatusInternalServerError:
		fault.Reason = Unreachable
	default:
		fault.Reason = BadAnswer
	}
}

// lost turns a failed exchange into an error without the token in it. The
// caller's own cancellation stays recognisable.
func (c *Client) lost(ctx, limited context.Context, fault *AccessError, err error) error {
	if cause := ctx.Err(); cause != nil {
		return fmt.Errorf("get %s of %s: %w", fault.File, fault.ID, cause)
	}
	fault.Reason = Unreachable
	if limited.Err() != nil {
		fault.Detail = "no answer in time"
		return fault
	}
	if outer, ok := errors.AsType[*url.Error](err); ok {
		err = outer.Err // the address is named already
	}
	if c.Token != "" && strings.Contains(err.Error(), c.Token) {
		err = errors.New(strings.ReplaceAll(err.Error(), c.Token, "***"))
	}
	fault.Err = err
	return fault
}
