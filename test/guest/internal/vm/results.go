package vm

import (
	"archive/tar"
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"syscall"

	"bare.wire/test/guest/internal/proto"
)

// results is what comes over the port of results, on its way to where it belongs.
type results struct {
	*connection
	conn   net.Conn
	log    *os.File
	kernel *os.File
	tar    *io.PipeWriter
	untar  chan error
}

func (c *connection) serveResults(conn net.Conn) (err error) {
	s := &results{connection: c, conn: conn}
	if s.log, err = os.Create(c.run.path("log.txt")); err != nil {
		return err
	}
	defer s.log.Close()
	if s.kernel, err = os.Create(c.run.path("kernel.txt")); err != nil {
		return err
	}
	defer s.kernel.Close()
	defer func() { err = errors.Join(err, s.endTar()) }()
	r := bufio.NewReaderSize(conn, 1<<16)
	for {
		k, p, err := proto.Read(r)
		if isEnd(err) {
			return nil
		} else if err != nil {
			return err
		}
		if err := s.take(k, p); err != nil {
			return err
		}
	}
}

// isEnd says whether an error of a port is its end. A machine that dies does so in the middle of a frame, too; how it died is what is to
// be told then, and is.
func isEnd(err error) bool {
	return err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, syscall.ECONNRESET)
}

// take takes a frame.
func (s *results) take(k proto.Kind, p []byte) error {
	switch k {
	case proto.Hello:
		return s.hello(p)
	case proto.Output:
		if s.run.spec.Output == nil {
			return nil
		}
		_, err := s.run.spec.Output.Write(p)
		return err
	case proto.Log:
		_, err := fmt.Fprintf(s.log, "%s\n", p)
		return err
	case proto.Kernel:
		_, err := s.kernel.Write(p)
		return err
	case proto.Tar:
		return s.piece(p)
	case proto.Restart:
		s.mu.Lock()
		s.last++
		s.mu.Unlock()
		return proto.Write(s.conn, proto.Ack, nil)
	case proto.End:
		return s.ended(p)
	}
	return fmt.Errorf("a frame %q, which nobody knows", k)
}

func (s *results) hello(release []byte) error {
	s.mu.Lock()
	s.starts++
	n, announced := s.starts, s.last
	s.mu.Unlock()
	if n != announced+1 {
		return fmt.Errorf("the guest has booted %d times, and announced %d restarts: its kernel may have panicked", n, announced)
	}
	if n > 1+s.run.spec.Restarts {
		return fmt.Errorf("the guest has booted %d times, and may boot again %d times", n, s.run.spec.Restarts)
	}
	if n > 1 && s.run.spec.Again != nil {
		s.run.spec.Again()
	}
	if _, err := fmt.Fprintf(s.log, "start %d, kernel %s\n", n, release); err != nil {
		return err
	}
	return proto.Write(s.conn, proto.Welcome, strconv.AppendInt(nil, int64(n), 10))
}

// ended notes the end, when all that came before it has been put where it belongs.
func (s *results) ended(p []byte) error {
	var e proto.Ending
	if err := json.Unmarshal(p, &e); err != nil {
		return fmt.Errorf("how the command ended: %w", err)
	}
	if err := s.endTar(); err != nil {
		return err
	}
	s.mu.Lock()
	s.end = &e
	s.mu.Unlock()
	return proto.Write(s.conn, proto.Ack, nil)
}

// piece passes a piece of the archive of /out on to whoever unpacks it.
func (s *results) piece(p []byte) error {
	if s.tar == nil {
		r, w := io.Pipe()
		s.tar, s.untar = w, make(chan error, 1)
		go func() {
			err := unpack(r, s.run.path("out"))
			r.CloseWithError(err)
			s.untar <- err
		}()
	}
	if _, err := s.tar.Write(p); err != nil {
		return s.endTar() // which says why
	}
	return nil
}

func (s *results) endTar() error {
	if s.tar == nil {
		return nil
	}
	s.tar.Close()
	s.tar = nil
	return <-s.untar
}

// unpack unpacks an archive into a directory, which it does not leave whatever the names in the archive say.
func unpack(r io.Reader, dir string) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	tr := tar.NewReader(r)
	for {
		h, err := tr.Next()
		if err == io.EOF {
			// What pads the archive at its end is still on its way.
			_, err = io.Copy(io.Discard, r)
			return err
		} else if err != nil {
			return fmt.Errorf("unpacking what the guest put out: %w", err)
		}
		if err := unpackOne(root, h, tr); err != nil {
			return fmt.Errorf("unpacking what the guest put out: %w", err)
		}
	}
}

func unpackOne(root *os.Root, h *tar.Header, r io.Reader) error {
	switch h.Typeflag {
	case tar.TypeDir:
		return root.MkdirAll(h.Name, 0o777)
	case tar.TypeReg:
		f, err := root.OpenFile(h.Name, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o666)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, r)
		return errors.Join(err, f.Close())
	}
	return fmt.Errorf("%s is neither a file nor a directory", h.Name)
}

// serveQuestions answers one question after the other.
func (c *connection) serveQuestions(conn net.Conn) error {
	r := bufio.NewReader(conn)
	for {
		k, p, err := proto.Read(r)
		if isEnd(err) {
			return nil
		} else if err != nil {
			return err
		}
		n, question, ok := proto.Number(p)
		if k != proto.Ask && k != proto.Monitor || !ok {
			return fmt.Errorf("a frame %q of %d bytes, which is no question", k, len(p))
		}
		kind := proto.Answer
		text, err := c.answer(k, question)
		if err == nil && len(text) > proto.MaxPayload-8 {
			err = fmt.Errorf("the answer has %d bytes, too many", len(text))
		}
		if err != nil {
			kind, text = proto.Refusal, err.Error()
		}
		if err := proto.Write(conn, kind, proto.Numbered(n, text)); err != nil {
			return err
		}
	}
}

// answer answers a question, or has the machine's monitor do so.
func (c *connection) answer(k proto.Kind, question string) (string, error) {
	if k == proto.Monitor {
		return c.run.monitor(question)
	}
	if c.run.spec.Answer == nil {
		return "", errors.New("nobody answers questions: set Machine.Answer")
	}
	return c.run.spec.Answer(question), nil
}
