// Package faulttable writes down which judge noticed which fault that was put into the software card on purpose: a judge that notices
// none says nothing with its verdict, and a fault that nobody notices is in a feature that nobody judges.
package faulttable

import (
	"fmt"
	"slices"
	"strings"
)

// Table is the outcome of faults under checks. The zero value is an empty one.
type Table struct{ rows []row }

type row struct {
	fault          string
	caught, passed []string // names of checks
	how            string   // what the first that caught it said
}

// Ran notes that a check ran with a fault in the card, and what it said; nil is that it noticed nothing.
func (t *Table) Ran(fault, check string, verdict error) {
	i := slices.IndexFunc(t.rows, func(r row) bool { return r.fault == fault })
	if i < 0 {
		t.rows = append(t.rows, row{fault: fault})
		i = len(t.rows) - 1
	}
	r := &t.rows[i]
	if verdict == nil {
		r.passed = append(r.passed, check)
		return
	}
	if len(r.caught) == 0 {
		r.how, _, _ = strings.Cut(verdict.Error(), "\n")
	}
	r.caught = append(r.caught, check)
}

// Unnoticed are the faults that no check has caught, in the order in which they were tried.
func (t *Table) Unnoticed() (faults []string) {
	for _, r := range t.rows {
		if len(r.caught) == 0 {
			faults = append(faults, r.fault)
		}
	}
	return faults
}

// maxHow is how much of a verdict the table shows.
const maxHow = 100

// Text is the table, a line for each fault: its name, who caught it, who did not, and what the first one said.
func (t *Table) Text(judge string) string {
	var b strings.Builder
	caught := len(t.rows) - len(t.Unnoticed())
	fmt.Fprintf(&b, "fault × judge: %s caught %d of %d\n", judge, caught, len(t.rows))
	for _, r := range t.rows {
		verdict := "NOT CAUGHT"
		if len(r.caught) > 0 {
			verdict = "caught by " + strings.Join(r.caught, ", ")
		}
		if len(r.passed) > 0 {
			verdict += "; passed by " + strings.Join(r.passed, ", ")
		}
		fmt.Fprintf(&b, "  %-18s %s\n", r.fault, verdict)
		if how := r.how; how != "" {
			if len(how) > maxHow {
				how = how[:maxHow] + "…"
			}
			fmt.Fprintf(&b, "  %-18s   %s\n", "", how)
		}
	}
	return b.String()
}
