//go:build !amd64 && !arm64

package pci

import "sync/atomic"

func store32(p *uint32, v uint32) { atomic.StoreUint32(p, v) }
