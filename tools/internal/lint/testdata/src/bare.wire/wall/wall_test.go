package wall

import "time"

func inTests() {
	time.Sleep(1) // want "time.Sleep"
}
