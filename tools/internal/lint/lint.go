// Package lint holds the analyzers for the rules of this project that a compiler cannot know:
//
//   - payloadcopy: payload is copied by mbuf.Copy, which counts, and by nothing else;
//   - wallclock: time comes from a clock.Clock, so that a run can be exact;
//   - nolog: a library returns what it has to say, it does not print;
//   - nopanic: a library panics only where the state is impossible, and says why it is.
//
// Exceptions to analyzer A are in tools/A.allow, each with its reason (see package allow).
package lint

import (
	"fmt"
	"go/ast"
	"go/types"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/types/typeutil"

	"bare.wire/tools/internal/allow"
)

// Analyzers is all of them.
func Analyzers() []*analysis.Analyzer {
	return []*analysis.Analyzer{PayloadCopy, WallClock, NoLog, NoPanic}
}

// Module is the path of the module whose packages are judged.
const Module = "bare.wire"

// room returns the package path below the module, "" for packages of other modules, and the first element of that path.
func room(pkg *types.Package) (path, top string) {
	path, ok := strings.CutPrefix(strings.TrimSuffix(pkg.Path(), "_test"), Module+"/")
	if !ok {
		return "", ""
	}
	top, _, _ = strings.Cut(path, "/")
	return path, top
}

// programs are the rooms that are whole programs: they may print and end the process.
var programs = map[string]bool{"cmd": true, "examples": true, "appliance": true, "bench": true, "test": true, "tools": true}

// library says whether a package is part of the library: not a program, and not inside a room of programs.
func library(pkg *types.Package) bool {
	path, top := room(pkg)
	return path != "" && !programs[top] && pkg.Name() != "main"
}

// lists keeps every list of exceptions that has been read, by file.
var lists sync.Map

// exceptions is one analyzer's list, as it concerns one package.
type exceptions struct {
	pass *analysis.Pass
	list allow.List
	used map[int]bool
	root string // of the module
}

// newExceptions reads the list of exceptions of the analyzer that is running.
func newExceptions(pass *analysis.Pass) (*exceptions, error) {
	x := &exceptions{pass: pass, used: map[int]bool{}}
	if len(pass.Files) == 0 {
		return x, nil
	}
	x.root = moduleRoot(filepath.Dir(pass.Fset.Position(pass.Files[0].FileStart).Filename))
	if x.root == "" {
		return x, nil
	}
	file := filepath.Join(x.root, "tools", pass.Analyzer.Name+".allow")
	if l, ok := lists.Load(file); ok {
		x.list = l.(allow.List)
		return x, nil
	}
	l, err := allow.Load(file)
	if err != nil {
		return nil, err
	}
	lists.Store(file, l)
	x.list = l
	return x, nil
}

// report reports a finding at n, unless the function it is in is excepted.
func (x *exceptions) report(n ast.Node, fn string, format string, args ...any) {
	if i := x.list.Index(x.file(n), fn); i >= 0 {
		x.used[i] = true
		return
	}
	x.pass.Reportf(n.Pos(), "%s (in %s)", fmt.Sprintf(format, args...), fn)
}

// stale reports the exceptions for this package's files that excused nothing.
func (x *exceptions) stale() {
	for _, f := range x.pass.Files {
		for i, e := range x.list {
			if e.File == x.file(f) && !x.used[i] {
				x.pass.Reportf(f.Package, "the exception for %s:%s excuses nothing: take it off the list", e.File, e.Func)
			}
		}
	}
}

// file is the name of a node's file, relative to the root of the module.
func (x *exceptions) file(n ast.Node) string {
	name := x.pass.Fset.Position(n.Pos()).Filename
	if rel, err := filepath.Rel(x.root, name); err == nil {
		name = rel
	}
	return filepath.ToSlash(name)
}

// moduleRoot is the nearest directory upwards that holds a go.mod, or "" when none does.
func moduleRoot(dir string) string {
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		up := filepath.Dir(dir)
		if up == dir {
			return ""
		}
		dir = up
	}
}

// isTest says whether a file is a _test.go file.
func isTest(pass *analysis.Pass, f *ast.File) bool {
	return strings.HasSuffix(pass.Fset.Position(f.FileStart).Filename, "_test.go")
}

// inspect calls visit for every node of the wanted files, with the name of the function that it is in: `F`, `T.M`, or `-`.
func inspect(pass *analysis.Pass, wanted func(*ast.File) bool, visit func(f *ast.File, fn string, n ast.Node)) {
	for _, f := range pass.Files {
		if !wanted(f) {
			continue
		}
		for _, d := range f.Decls {
			fn := funcName(d)
			ast.Inspect(d, func(n ast.Node) bool {
				if n != nil {
					visit(f, fn, n)
				}
				return true
			})
		}
	}
}

func funcName(d ast.Decl) string {
	fd, ok := d.(*ast.FuncDecl)
	if !ok {
		return "-"
	}
	if fd.Recv == nil || len(fd.Recv.List) == 0 {
		return fd.Name.Name
	}
	t := fd.Recv.List[0].Type
	for {
		switch u := t.(type) {
		case *ast.StarExpr:
			t = u.X
		case *ast.ParenExpr:
			t = u.X
		case *ast.IndexExpr:
			t = u.X
		case *ast.IndexListExpr:
			t = u.X
		case *ast.Ident:
			return u.Name + "." + fd.Name.Name
		default:
			return fd.Name.Name
		}
	}
}

// callee is the full name of the function that a call calls (`time.Now`, `(*log/slog.Logger).Info`), the bare name of a
// builtin, or "".
func callee(pass *analysis.Pass, call *ast.CallExpr) string {
	switch o := typeutil.Callee(pass.TypesInfo, call).(type) {
	case *types.Func:
		return o.Origin().FullName()
	case *types.Builtin:
		return o.Name()
	}
	return ""
}
