// Package place is where engine processes run: on this machine, in a Docker or
// Podman container, in a Kubernetes pod, on another host over ssh.
package place
