package prints

import "fmt"

func inTests() { fmt.Println() }
