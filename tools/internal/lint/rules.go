package lint

import (
	"go/ast"
	"go/types"
	"strings"

	"golang.org/x/tools/go/analysis"
)

// WallClock finds uses of the wall clock. Only package clock may ask what time it is: everything else is handed a clock.Clock,
// tests too, since a test that sleeps is a test that sometimes fails.
var WallClock = &analysis.Analyzer{
	Name: "wallclock",
	Doc:  "bans time.Now, time.Sleep and the like outside package clock",
	Run:  wallClock,
}

var wallFuncs = map[string]bool{
	"time.Now": true, "time.Since": true, "time.Until": true, "time.Sleep": true, "time.After": true, "time.AfterFunc": true,
	"time.NewTimer": true, "time.NewTicker": true, "time.Tick": true, "golang.org/x/sys/unix.ClockGettime": true,
}

func wallClock(pass *analysis.Pass) (any, error) {
	if path, top := room(pass.Pkg); path == "" || top == "clock" || top == "tools" {
		return nil, nil
	}
	x, err := newExceptions(pass)
	if err != nil {
		return nil, err
	}
	// Uses, not calls: `now := time.Now` is as bad.
	inspect(pass, func(*ast.File) bool { return true }, func(_ *ast.File, fn string, n ast.Node) {
		id, ok := n.(*ast.Ident)
		if !ok {
			return
		}
		if f, ok := pass.TypesInfo.Uses[id].(*types.Func); ok && wallFuncs[f.FullName()] {
			x.report(id, fn, "%s: time comes from a clock.Clock", f.FullName())
		}
	})
	x.stale()
	return nil, nil
}

// NoLog finds printing in the library: packages log and the process-wide slog logger, fmt.Print, the standard streams.
var NoLog = &analysis.Analyzer{
	Name: "nolog",
	Doc:  "bans printing and logging by libraries",
	Run:  noLog,
}

func noLog(pass *analysis.Pass) (any, error) {
	if !library(pass.Pkg) {
		return nil, nil
	}
	x, err := newExceptions(pass)
	if err != nil {
		return nil, err
	}
	inspect(pass, func(f *ast.File) bool { return !isTest(pass, f) }, func(_ *ast.File, fn string, n ast.Node) {
		id, ok := n.(*ast.Ident)
		if !ok {
			return
		}
		o := pass.TypesInfo.Uses[id]
		if o == nil {
			return
		}
		switch name := qualified(o); {
		case strings.HasPrefix(name, "log."), strings.HasPrefix(name, "fmt.Print"),
			name == "os.Stdout", name == "os.Stderr", name == "print", name == "println",
			strings.HasPrefix(name, "log/slog.") && isFunc(o) && slogGlobal[o.Name()]:
			x.report(id, fn, "%s: a library returns errors and counts; it does not print", name)
		}
	})
	x.stale()
	return nil, nil
}

// slogGlobal are the functions of log/slog that use the process-wide logger.
var slogGlobal = map[string]bool{
	"Default": true, "SetDefault": true, "With": true, "Log": true, "LogAttrs": true,
	"Debug": true, "DebugContext": true, "Info": true, "InfoContext": true,
	"Warn": true, "WarnContext": true, "Error": true, "ErrorContext": true,
}

func isFunc(o types.Object) bool {
	f, ok := o.(*types.Func)
	return ok && f.Signature().Recv() == nil
}

// qualified is `path.Name` for what a package declares at its top, the bare name of a builtin, or "".
func qualified(o types.Object) string {
	if _, ok := o.(*types.Builtin); ok {
		return o.Name()
	}
	if o.Pkg() == nil || o.Parent() != o.Pkg().Scope() {
		return ""
	}
	return o.Pkg().Path() + "." + o.Name()
}

// NoPanic finds panics and process exits in the library. A panic is right where the state cannot be; the line then says why, in a
// comment that begins `// impossible:` on it or on the line above.
var NoPanic = &analysis.Analyzer{
	Name: "nopanic",
	Doc:  "bans panic in libraries without an `// impossible:` comment, and os.Exit",
	Run:  noPanic,
}

func noPanic(pass *analysis.Pass) (any, error) {
	if !library(pass.Pkg) {
		return nil, nil
	}
	x, err := newExceptions(pass)
	if err != nil {
		return nil, err
	}
	reasons := map[string]map[int]bool{} // file name → lines that an impossible: comment ends on
	line := func(n ast.Node) (string, int) {
		p := pass.Fset.Position(n.Pos())
		return p.Filename, p.Line
	}
	for _, f := range pass.Files {
		for _, g := range f.Comments {
			if strings.HasPrefix(strings.TrimSpace(g.Text()), "impossible:") {
				name, _ := line(g)
				if reasons[name] == nil {
					reasons[name] = map[int]bool{}
				}
				reasons[name][pass.Fset.Position(g.End()).Line] = true
			}
		}
	}
	inspect(pass, func(f *ast.File) bool { return !isTest(pass, f) }, func(_ *ast.File, fn string, n ast.Node) {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return
		}
		switch callee(pass, call) {
		case "panic":
			if name, l := line(call); !reasons[name][l] && !reasons[name][l-1] {
				x.report(call, fn, "panic: return an error, or say in a comment `// impossible: …` on this line or above why it cannot happen")
			}
		case "os.Exit", "syscall.Exit":
			x.report(call, fn, "a library does not end the process")
		}
	})
	x.stale()
	return nil, nil
}
