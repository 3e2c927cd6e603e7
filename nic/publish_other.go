//go:build !amd64 && !arm64

package nic

import "sync/atomic"

func publish(p *uint64, v uint64) { atomic.StoreUint64(p, v) }
