package render

// File is one generated file. Path is relative to the directory of package reg.
type File struct {
	Path   string
	Render func() ([]byte, error)
}

// Files lists everything that is generated. It is not changed.
var Files = []File{
	{"zregs.go", Go},
	{"zregs_test.go", GoTest},
	{"../../docs/registers.md", func() ([]byte, error) { return Markdown(), nil }},
}
