package soak

import (
	"encoding/binary"
	"fmt"

	"bare.wire/mbuf"
)

const (
	minFrame  = 60   // what devices pad shorter frames to; bytes without FCS
	maxFrame  = 960  // none is as long
	minBuffer = 1024 // smallest size of a pool's buffers: each holds a frame

	etherTest = 0x88B5 // an EtherType for experiments (IEEE 802)
	offNumber = 14     // where a frame's number is, 8 bytes
	offRest   = 22     // and what follows from it
)

// frame is a frame of n bytes with number id, in one to three segments; every byte follows from number and place. nil: the
// pool is dry.
func frame(c *mbuf.Cache, dst [6]byte, id uint64, n, cuts int) *mbuf.Buf {
	data := make([]byte, n)
	copy(data, dst[:])
	binary.BigEndian.PutUint16(data[12:], etherTest)
	binary.BigEndian.PutUint64(data[offNumber:], id)
	for k := offRest; k < n; k++ {
		data[k] = byte(id) + byte(k)
	}
	var head, last *mbuf.Buf
	for at := 0; at < n; {
		b := c.Alloc()
		if b == nil {
			if head != nil {
				head.Free()
			}
			return nil
		}
		k := n - at
		if cuts > 0 && k > 40 {
			k, cuts = k/2, cuts-1
		}
		room, err := b.Reserve(k)
		if err != nil {
			panic(err) // impossible: a buffer holds minBuffer bytes
		}
		copy(room, data[at:])
		at += k
		if head == nil {
			head = b
		} else {
			last.SetNext(b)
		}
		last = b
	}
	return head
}

// check is the number of a frame, and what is wrong with it.
func check(b *mbuf.Buf) (id uint64, err error) {
	var data []byte
	for s := b; s != nil; s = s.Next() {
		data = append(data, s.Bytes()...)
	}
	if len(data) < minFrame {
		return 0, fmt.Errorf("%d bytes", len(data))
	}
	id = binary.BigEndian.Uint64(data[offNumber:])
	for k := offRest; k < len(data); k++ {
		if data[k] != byte(id)+byte(k) {
			return id, fmt.Errorf("byte %d of %d is %#x", k, len(data), data[k])
		}
	}
	return id, nil
}
