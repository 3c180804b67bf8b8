// Package internal holds the tests that look at the whole repository instead
// of at one package: the import floors, the house rules, and the commands
// shown in the documentation, which are run and compared with what the page
// says. It exports nothing and no package imports it.
//
// Folders below it are helpers for tests; only test files may import them.
package internal
