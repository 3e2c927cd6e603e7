package calls

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
)

type question struct{ N int }

type answer struct{ Half int }

func half(q question) (answer, error) {
	if q.N%2 != 0 {
		return answer{q.N / 2}, errors.New("odd")
	}
	return answer{q.N / 2}, nil
}

func TestAnswersAndFaultsComeBack(t *testing.T) {
	serve := Serve(half)
	if a, err := decode[answer](serve(`{"N":8}`)); err != nil || a.Half != 4 {
		t.Errorf("%+v, %v", a, err)
	}
	if a, err := decode[answer](serve(`{"N":9}`)); err == nil || err.Error() != "odd" || a.Half != 4 {
		t.Errorf("%+v, %v, want what there is and the fault", a, err)
	}
	if _, err := decode[answer](serve(`{"N":"x"}`)); err == nil || !strings.Contains(err.Error(), "unmarshal") {
		t.Errorf("a question that cannot be read: %v", err)
	}
	if _, err := decode[answer](Serve(func(question) (any, error) { return func() {}, nil })(`{}`)); err == nil || !strings.Contains(err.Error(), "unsupported type") {
		t.Errorf("an answer that cannot be written: %v", err)
	}
	if _, err := decode[answer]("x"); err == nil || !strings.Contains(err.Error(), "the host's answer") {
		t.Errorf("an answer that is none: %v", err)
	}
}

func TestRequestsShareOneConnection(t *testing.T) {
	n := &Nicsim{Socket: filepath.Join(t.TempDir(), "control")}
	if _, err := n.Do(json.RawMessage("{}")); err == nil {
		t.Fatal("nobody listens, and answers")
	}
	l, err := net.Listen("unix", n.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		in := bufio.NewScanner(c)
		for i := 0; i < 2 && in.Scan(); i++ {
			fmt.Fprintf(c, `{"ok":true,"line":%q,"n":%d}`+"\n", in.Text(), i)
		}
	}()
	for i, request := range []string{`{"do":"a"}`, " {\"do\":\"b\"}\n"} {
		var a struct {
			Line string
			N    int
		}
		got, err := n.Do(json.RawMessage(request))
		if err == nil {
			err = Done(got, &a)
		}
		if err != nil || a.Line != strings.TrimSpace(request) || a.N != i {
			t.Errorf("%q: %+v, %v", request, a, err)
		}
	}
	if _, err := n.Do(json.RawMessage("{}")); err == nil {
		t.Error("an answer from a conversation that has ended")
	}
}

func TestRequestThatIsRefused(t *testing.T) {
	if err := Done(json.RawMessage(`{"ok":false,"error":"no such card"}`), nil); err == nil || err.Error() != "no such card" {
		t.Error(err)
	}
	if err := Done(json.RawMessage("nothing"), nil); err == nil {
		t.Error("an answer that is none is done")
	}
	if err := Done(json.RawMessage(`{"ok":true}`), nil); err != nil {
		t.Error(err)
	}
}
