// SPDX-License-Identifier: MIT

package main

/*
#include <unistd.h>
static void noop(void) {}
static void ms(void) { usleep(1000); }
*/
import "C"
import (
	"sync"
	"time"
)

func cgoBench() {
	const n = 10_000_000
	t := time.Now()
	for i := 0; i < n; i++ {
		C.noop()
	}
	out("cgo_noop", nsop(time.Since(t), n), "ns/call")
	// blocking offload in the Go manner: new goroutine does the call, caller waits
	const m = 1_000_000
	ch := make(chan struct{})
	t = time.Now()
	for i := 0; i < m; i++ {
		go func() { C.noop(); ch <- struct{}{} }()
		<-ch
	}
	out("blocking_offload", nsop(time.Since(t), m), "ns/call")
}

func block1000() {
	var wg sync.WaitGroup
	t := time.Now()
	for i := 0; i < 1000; i++ {
		wg.Add(1)
		go func() { C.ms(); wg.Done() }()
	}
	wg.Wait()
	out("blocking_1000x1ms", float64(time.Since(t).Microseconds())/1000, "ms")
}
