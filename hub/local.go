package hub

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// isPath reports whether a reference can only mean a place on this machine.
func isPath(ref string) bool {
	for _, prefix := range []string{"./", "../", `.\`, `..\`, "~/", `~\`} {
		if strings.HasPrefix(ref, prefix) {
			return true
		}
	}
	if ref == "." || ref == ".." || ref == "~" || filepath.IsAbs(ref) || strings.HasPrefix(ref, "/") {
		return true
	}
	return strings.HasSuffix(strings.ToLower(ref), ".gguf") || filepath.Base(ref) == "config.json"
}

// local reads a model from this machine. found is false where the reference
// is no path and nothing of that name lies here.
func (c *Client) local(ref string) (resolved *Resolved, found bool, err error) {
	path := ref
	if rest, home := strings.CutPrefix(filepath.ToSlash(ref), "~"); home && (rest == "" || rest[0] == '/') && c.Home != "" {
		path = filepath.Join(c.Home, filepath.FromSlash(rest))
	}
	info, err := os.Stat(path)
	if err != nil {
		if !isPath(ref) {
			return nil, false, nil
		}
		return nil, true, &RefError{Ref: ref, Problem: "open " + path, Err: withoutPath(err)}
	}
	switch {
	case info.IsDir():
		return c.folder(ref, path)
	case strings.HasSuffix(strings.ToLower(path), ".gguf"):
		resolved, err = ggufResolved(path)
	case strings.HasSuffix(strings.ToLower(path), ".json"):
		resolved, err = configResolved(path, "file "+path)
	case isPath(ref):
		err = &RefError{Ref: ref, Problem: "is neither a folder nor a config.json or .gguf file"}
	default:
		return nil, false, nil
	}
	return resolved, true, err
}

// folder reads a model folder: its config.json and the headers of its
// weights, else its only .gguf file.
func (c *Client) folder(ref, path string) (*Resolved, bool, error) {
	config := filepath.Join(path, "config.json")
	if _, err := os.Stat(config); err == nil {
		resolved, err := configResolved(config, "folder "+path)
		if err != nil {
			return nil, true, err
		}
		facts, warnings := folderFacts(path, resolved.Model)
		resolved.Facts = facts
		resolved.Warnings = append(resolved.Warnings, warnings...)
		return resolved, true, nil
	}
	files, err := ggufFiles(path)
	switch {
	case err != nil:
		return nil, true, &RefError{Ref: ref, Problem: "read folder " + path, Err: withoutPath(err)}
	case len(files) == 1:
		resolved, err := ggufResolved(filepath.Join(path, files[0]))
		return resolved, true, err
	case len(files) > 1:
		return nil, true, &RefError{Ref: ref, Problem: "the folder has several .gguf files, name one: " + listed(files)}
	case !isPath(ref):
		return nil, false, nil // a folder that only happens to be called so
	}
	if _, err := os.Stat(filepath.Join(path, "params.json")); err == nil {
		return nil, true, &RefError{Ref: ref, Problem: "the folder has params.json, the original layout, but no config.json: use the transformers version of the model"}
	}
	return nil, true, &RefError{Ref: ref, Problem: "the folder has neither config.json nor a .gguf file"}
}

// ggufFiles lists the models in a folder; of a split one only the first part.
func ggufFiles(folder string) ([]string, error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	var files []string
	for _, entry := range entries {
		name := entry.Name()
		if !strings.HasSuffix(strings.ToLower(name), ".gguf") || strings.Contains(name, "mmproj") {
			continue
		}
		if strings.Contains(name, "-of-") && !strings.Contains(name, "-00001-of-") {
			continue
		}
		files = append(files, name)
	}
	slices.Sort(files)
	return files, nil
}

func ggufResolved(path string) (*Resolved, error) {
	m, facts, warnings, err := readGGUFFile(path)
	if err != nil {
		return nil, err
	}
	return &Resolved{Model: m, Origin: "gguf " + path, Facts: facts, Warnings: warnings}, nil
}

// configResolved reads a config.json, with the hf_quant_config.json beside it
// where the config names no quantisation.
func configResolved(path, origin string) (*Resolved, error) {
	text, err := readText(path, MaxConfigBytes)
	if err != nil {
		return nil, err
	}
	// A relative path gives no folder name to call the model by.
	full, err := filepath.Abs(path)
	if err != nil {
		full = path
	}
	m, warnings, err := ParseConfig(path, text)
	if err != nil {
		return nil, err
	}
	m.Name = modelName(full)
	resolved := &Resolved{Model: m, Origin: origin, Warnings: warnings}
	if m.Quantization != "" {
		return resolved, nil
	}
	quant := filepath.Join(filepath.Dir(path), "hf_quant_config.json")
	text, err = readText(quant, MaxConfigBytes)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return resolved, nil
	case err == nil:
		m.Quantization, warnings, err = ParseQuantConfig(quant, text)
		resolved.Warnings = append(resolved.Warnings, warnings...)
	}
	if err != nil {
		return nil, err
	}
	return resolved, nil
}

// readText reads a file of at most limit bytes.
func readText(path string, limit int64) ([]byte, error) {
	file, size, err := openRegular(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if size > limit {
		return nil, &FileError{File: path, Problem: fmt.Sprintf("the file has %d bytes: at most %d are read", size, limit)}
	}
	text, err := io.ReadAll(io.LimitReader(file, limit+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, withoutPath(err))
	}
	if int64(len(text)) > limit {
		return nil, &FileError{File: path, Problem: fmt.Sprintf("the file has more than %d bytes", limit)}
	}
	return text, nil
}
