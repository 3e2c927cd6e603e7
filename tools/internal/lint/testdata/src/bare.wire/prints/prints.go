package prints

import (
	"fmt"
	"log"
	"log/slog"
	"os"
)

func prints(l *slog.Logger) error {
	log.Println("x")        // want `log.Println: a library returns errors`
	fmt.Println("x")        // want `fmt.Println`
	fmt.Fprintln(os.Stderr) // want `os.Stderr`
	println("x")            // want `println`
	slog.Info("x")          // want `log/slog.Info`
	_ = slog.Default()      // want `log/slog.Default`
	l.Info("a logger that was handed in is the caller's choice")
	_ = slog.String("k", "v")
	return fmt.Errorf("x")
}
