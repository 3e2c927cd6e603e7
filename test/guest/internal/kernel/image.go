package kernel

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// quicker returns an image that boots quicker than a bzImage whose kernel is compressed with xz, as Debian's generic ones are: an
// emulated processor needs 2.5 s to unpack those, at each boot. The kernel is unpacked once, here, into the file named. Where that cannot be done
// (no xz, another compression), the image is returned as it is.
func quicker(ctx context.Context, image, unpacked string) string {
	if exists(unpacked) {
		return unpacked
	}
	if err := unpack(ctx, image, unpacked); err != nil {
		return image
	}
	return unpacked
}

var xzMagic = []byte{0xfd, '7', 'z', 'X', 'Z', 0}

// The header of a bzImage (Documentation/x86/boot.rst in the kernel's tree).
const (
	setupSectors  = 0x1f1 // length of the real-mode part in sectors, less one
	setupMagic    = 0x202 // "HdrS"
	payloadOffset = 0x248 // of the compressed kernel, from the end of the real-mode part
	payloadLength = 0x24c
	sector        = 512
)

var errNotXZ = errors.New("its kernel is not compressed with xz")

// payload is the compressed kernel within a bzImage.
func payload(image []byte) ([]byte, error) {
	if len(image) < payloadLength+4 || string(image[setupMagic:setupMagic+4]) != "HdrS" {
		return nil, errors.New("not a bzImage")
	}
	setup := (uint64(image[setupSectors]) + 1) * sector
	from := setup + uint64(binary.LittleEndian.Uint32(image[payloadOffset:]))
	to := from + uint64(binary.LittleEndian.Uint32(image[payloadLength:]))
	if to > uint64(len(image)) {
		return nil, fmt.Errorf("its kernel lies at bytes %d to %d of %d", from, to, len(image))
	}
	// The last four bytes are the length after unpacking, which is not part of the stream.
	if p := image[from:to]; len(p) > 4 && bytes.HasPrefix(p, xzMagic) {
		return p[:len(p)-4], nil
	}
	return nil, errNotXZ
}

func unpack(ctx context.Context, image, unpacked string) error {
	b, err := os.ReadFile(image)
	if err != nil {
		return err
	}
	p, err := payload(b)
	if err != nil {
		return fmt.Errorf("%s: %w", image, err)
	}
	cmd := exec.CommandContext(ctx, "xz", "-dc", "--single-stream")
	cmd.Stdin = bytes.NewReader(p)
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("xz: %w", err)
	}
	if _, err := elf.NewFile(bytes.NewReader(out)); err != nil {
		return fmt.Errorf("%s: what was in it: %w", image, err)
	}
	f, err := os.CreateTemp(filepath.Dir(unpacked), "vmlinux-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(out)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), unpacked)
}
