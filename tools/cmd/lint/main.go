// Lint runs the project's own analyzers (see internal/lint) over packages:
//
//	lint ./...
//
// It stands beside go vet and staticcheck. The exceptions are in tools/*.allow, each with its reason.
package main

import (
	"golang.org/x/tools/go/analysis/multichecker"

	"bare.wire/tools/internal/lint"
)

func main() { multichecker.Main(lint.Analyzers()...) }
