package device

import (
	"context"
	"errors"
)

const nullFrame = 60

type nullDevice struct{}

func openNull(context.Context, Options, *Set, []name) error { return errors.ErrUnsupported }
