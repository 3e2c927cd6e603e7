package pci

import (
	"errors"
	"strings"
)

// Reasons for which a device is not bound.
var (
	ErrInUse      = errors.New("in use")
	ErrNotViable  = errors.New("its IOMMU group is shared")
	ErrNoIOMMU    = errors.New("no IOMMU guards it")
	ErrNoDriver   = errors.New("the driver is not there")
	ErrNotNetwork = errors.New("not a network card")
	ErrState      = errors.New("what was noted about bindings cannot be trusted")
)

// RefusedError says that nothing was changed, why, and what to do.
type RefusedError struct {
	Address Address
	Kind    error    // one of the Err variables above; errors.Is finds it
	Reasons []string // in words, may be empty
	Remedy  string
}

// Error is one line.
func (e *RefusedError) Error() string {
	var b strings.Builder
	b.WriteString("PCI device " + e.Address.String() + ": " + e.Kind.Error())
	if len(e.Reasons) > 0 {
		b.WriteString(": " + strings.Join(e.Reasons, "; "))
	}
	if e.Remedy != "" {
		b.WriteString("; " + e.Remedy)
	}
	return b.String()
}

// Unwrap returns Kind.
func (e *RefusedError) Unwrap() error { return e.Kind }
