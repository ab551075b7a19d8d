//go:build !lockorder

package lockorder

import "sync"

// A Mutex is a sync.Mutex with a rank.
type Mutex[R Rank] struct{ sync.Mutex }
