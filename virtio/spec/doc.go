// Package spec holds what a virtio network driver and a virtio network device have to agree on: identifiers, register layouts,
// feature bits, ring layouts, headers and commands. It has no behaviour; package virtio is the driver, package sim/virtionet
// the device.
//
// The names are those of the specification (Virtual I/O Device (VIRTIO) Version 1.2, OASIS Committee Specification 01), whose
// section is given at each table. All fields are little-endian, but for the legacy interface, where they are in the guest's
// byte order; amd64 and arm64 are little-endian too.
package spec
