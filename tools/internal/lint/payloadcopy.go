package lint

import (
	"go/ast"
	"go/constant"
	"go/types"

	"golang.org/x/tools/go/analysis"
)

// PayloadCopy finds copies of bytes in the rooms that payload passes through. What is smaller than a header and has a fixed
// length (an address kept as an array of at most 16 bytes) and constants are no payload. The software cards' DMA (sim/) is not
// a copy; what they do is in their own log.
var PayloadCopy = &analysis.Analyzer{
	Name: "payloadcopy",
	Doc:  "bans copies of byte slices outside mbuf.Copy in the rooms that payload passes through",
	Run:  payloadCopy,
}

// payloadRooms are the rooms that payload passes through.
var payloadRooms = map[string]bool{
	"mbuf": true, "nic": true, "ixgbe": true, "virtio": true, "netstack": true, "wire": true, "device": true, "copier": true,
}

// copying are the functions that copy bytes, besides the builtins. Generic ones copy payload only when they work on bytes.
var copying = map[string]bool{
	"bytes.Clone": true, "bytes.Join": true, "io.Copy": true, "io.CopyN": true, "io.CopyBuffer": true,
	"io.ReadAll": true, "io.ReadFull": true, "io.ReadAtLeast": true,
	"(*bytes.Buffer).Write": true, "(*bytes.Buffer).Read": true, "(*bytes.Reader).Read": true,
	"slices.Clone": true, "slices.Concat": true, "slices.Insert": true, "slices.Replace": true, "slices.AppendSeq": true,
}

// addressLen is the longest array, in bytes, that is taken for an address: IPv6's.
const addressLen = 16

func payloadCopy(pass *analysis.Pass) (any, error) {
	if path, top := room(pass.Pkg); !payloadRooms[top] || !library(pass.Pkg) || path == "nic/nictest" { // a suite for tests is a test
		return nil, nil
	}
	x, err := newExceptions(pass)
	if err != nil {
		return nil, err
	}
	inspect(pass, func(f *ast.File) bool { return !isTest(pass, f) }, func(_ *ast.File, fn string, n ast.Node) {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return
		}
		name := callee(pass, call)
		switch {
		case name == "copy" && len(call.Args) == 2 && isBytes(pass, call.Args[0]) && !small(pass, call.Args[1]):
		case name == "append" && call.Ellipsis.IsValid() && isBytes(pass, call.Args[0]) && !small(pass, call.Args[len(call.Args)-1]):
		case copying[name] && (!isSlicesFunc(name) || len(call.Args) > 0 && isBytes(pass, call.Args[0])):
		default:
			return
		}
		x.report(call, fn, "%s copies bytes: payload is copied by mbuf.Copy, which counts, or passed by reference", name)
	})
	x.stale()
	return nil, nil
}

func isSlicesFunc(name string) bool { return len(name) > 7 && name[:7] == "slices." }

// isBytes says whether an expression is a slice of bytes.
func isBytes(pass *analysis.Pass, e ast.Expr) bool {
	t := pass.TypesInfo.TypeOf(e)
	if t == nil {
		return false
	}
	s, ok := t.Underlying().(*types.Slice)
	return ok && isByte(s.Elem())
}

func isByte(t types.Type) bool {
	b, ok := t.Underlying().(*types.Basic)
	return ok && b.Kind() == types.Uint8
}

// small says whether an expression can be no payload: a constant, or a slice of a whole array that is not longer than an address.
func small(pass *analysis.Pass, e ast.Expr) bool {
	e = ast.Unparen(e)
	if v := pass.TypesInfo.Types[e].Value; v != nil && v.Kind() == constant.String {
		return true
	}
	s, ok := e.(*ast.SliceExpr)
	if !ok {
		return false
	}
	t := pass.TypesInfo.TypeOf(s.X)
	if t == nil {
		return false
	}
	if p, ok := t.Underlying().(*types.Pointer); ok {
		t = p.Elem()
	}
	a, ok := t.Underlying().(*types.Array)
	return ok && isByte(a.Elem()) && a.Len() <= addressLen
}
