// Package virtio holds the tests in which our virtio driver meets a device that we have not written: QEMU's virtio-net-pci, in a
// virtual machine, over VT-d and VFIO or without either, with the host's kernel at the other end of its wire.
//
//	host                                                         guest
//	go test ──▶ QEMU, in a network namespace ──────────────────▶ the same test ──▶ device, virtio, pci ──▶ virtio-net-pci
//	    peer: packet socket, TCP server ◀── TAP, vnet header ◀───────────────────────────────────────────────┘
//	    Answer ◀── ask: frames, counts                            Monitor: pull the cable, pull the card
//
// One machine has many cards, each of another kind: a cell of the matrix in cells_test.go, where it is also said what QEMU 7.2
// cannot do. The tests are chosen by the build tag guest and run by `make guest`.
package virtio
