package testjson

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Saved is what is kept of a run, to be added up with others at the end.
type Saved struct {
	Name       string
	Counts     Counts
	Complaints []string
}

// Save writes a run to a file, whose directory is made; an empty name saves nothing.
func (s Saved) Save(file string) error {
	if file == "" {
		return nil
	}
	b, err := json.Marshal(s)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(file), 0o777)
	}
	if err == nil {
		err = os.WriteFile(file, b, 0o666)
	}
	if err != nil {
		return fmt.Errorf("saving the counts of %s: %w", s.Name, err)
	}
	return nil
}

// LoadSaved reads what Save wrote.
func LoadSaved(file string) (Saved, error) {
	var s Saved
	b, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	if err != nil {
		return s, fmt.Errorf("a saved run: %s: %w", file, err)
	}
	return s, nil
}

// AddUp prints runs and what failed in them and, last and alone on its line, the sum of their counts, which it returns.
func AddUp(w io.Writer, runs []Saved) Counts {
	var total Counts
	for _, s := range runs {
		fmt.Fprintf(w, "%-10s %s\n", s.Name, s.Counts)
		for _, c := range s.Complaints {
			fmt.Fprintln(w, "  *", c)
		}
		total = total.Add(s.Counts)
	}
	fmt.Fprintln(w, total)
	return total
}
