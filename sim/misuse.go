package sim

import (
	"fmt"
	"slices"
)

// MisuseKind is a device's kind of misuse.
type MisuseKind interface {
	comparable
	fmt.Stringer
	// Explain returns the section of the device's specification, "" if there is none, and what is wrong, in words.
	Explain() (section, text string)
}

// Misuse is something a driver did that the device's specification forbids.
type Misuse[K MisuseKind] struct {
	Kind    K
	Queue   int    // −1 where it is no queue's
	Section string // of the specification
	Detail  string // the first time: register, value, descriptor
	At      int64  // the first time, ns of the world's clock
	Count   int    // how often
}

func (m Misuse[K]) String() string {
	s := m.Kind.String()
	if m.Queue >= 0 {
		s += fmt.Sprintf(" on queue %d", m.Queue)
	}
	_, text := m.Kind.Explain()
	s += ": " + text + " (" + m.Detail
	if m.Section != "" {
		s += "; " + m.Section
	}
	return fmt.Sprintf("%s; %d times, first at %d ns)", s, m.Count, m.At)
}

// Misuses keeps one entry for each kind and queue, in order of first occurrence. The zero value is an empty record. Its device
// locks it.
type Misuses[K MisuseKind] struct {
	list  []Misuse[K]
	index map[misuseKey[K]]int
}

type misuseKey[K MisuseKind] struct {
	kind  K
	queue int
}

// Add records a misuse at a time, ns of the world's clock; queue is −1 where it is no queue's. The detail is made of format
// and args the first time only.
func (m *Misuses[K]) Add(now int64, k K, queue int, format string, args ...any) {
	key := misuseKey[K]{k, queue}
	if i, ok := m.index[key]; ok {
		m.list[i].Count++
		return
	}
	if m.index == nil {
		m.index = make(map[misuseKey[K]]int)
	}
	m.index[key] = len(m.list)
	section, _ := k.Explain()
	m.list = append(m.list, Misuse[K]{
		Kind: k, Queue: queue, Section: section, Detail: fmt.Sprintf(format, args...), At: now, Count: 1,
	})
}

// List returns a copy of the record.
func (m *Misuses[K]) List() []Misuse[K] { return slices.Clone(m.list) }
