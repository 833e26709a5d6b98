// SPDX-License-Identifier: MIT

package main

import (
	"fmt"
	"runtime"
	"sync"
	"syscall"
	"time"
)

func yieldMany() {
	runtime.GOMAXPROCS(1)
	const tasks, per = 1000, 5000
	var wg sync.WaitGroup
	wg.Add(tasks)
	t := time.Now()
	for k := 0; k < tasks; k++ {
		go func() {
			for i := 0; i < per; i++ {
				runtime.Gosched()
			}
			wg.Done()
		}()
	}
	wg.Wait()
	out("yield_many", nsop(time.Since(t), tasks*per), "ns/switch")
}

// A chain of dependent multiplications, as bn_work in common/bench.h.
//
//go:noinline
func work(steps int) uint64 {
	x := uint64(steps)
	for i := 0; i < steps; i++ {
		x = x*6364136223846793005 + 1442695040888963407
	}
	return x
}

func workPerUs() float64 {
	best := time.Hour
	for i := 0; i < 50; i++ {
		t := time.Now()
		work(100000)
		if d := time.Since(t); d < best {
			best = d
		}
	}
	return 100000 * 1e3 / float64(best.Nanoseconds())
}

// Two stages with ns of work for each item: is the second core used?
func pipeline(p, ns int) {
	runtime.GOMAXPROCS(p)
	const n = 200_000
	steps := int(workPerUs() * float64(ns) / 1000)
	c := make(chan int64, 128)
	t := time.Now()
	go func() {
		for i := int64(0); i < n; i++ {
			work(steps)
			c <- i
		}
		close(c)
	}()
	k := 0
	for range c {
		work(steps)
		k++
	}
	if k != n {
		panic("lost")
	}
	out(fmt.Sprintf("pipeline_%dns_%dw", ns, p), nsop(time.Since(t), n), "ns/item")
}

// 1,000 parked goroutines for 3 s: context switches and CPU time of the process.
func idle() {
	c := make(chan int)
	var wg sync.WaitGroup
	for i := 0; i < 1000; i++ {
		wg.Add(1)
		go func() { wg.Done(); <-c }()
	}
	wg.Wait()
	time.Sleep(200 * time.Millisecond)
	var a, b syscall.Rusage
	syscall.Getrusage(0, &a)
	c0 := cpus()
	time.Sleep(3 * time.Second)
	syscall.Getrusage(0, &b)
	out("idle_switches", float64(b.Nvcsw+b.Nivcsw-a.Nvcsw-a.Nivcsw), "switches")
	out("idle_cpu", (cpus()-c0)*1000, "cpu-ms")
	close(c)
}
