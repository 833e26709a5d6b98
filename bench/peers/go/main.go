// SPDX-License-Identifier: MIT

// Benchmarks of the Go runtime. Prints "bench<TAB>value<TAB>unit" lines.
// usage: gobench <bench> [args]
package main

import (
	"fmt"
	"math/rand"
	"os"
	"runtime"
	"runtime/debug"
	"sort"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

func out(b string, v float64, u string) { fmt.Printf("%s\t%.1f\t%s\n", b, v, u) }

func nsop(d time.Duration, n int) float64 { return float64(d.Nanoseconds()) / float64(n) }

func rss() int64 {
	b, _ := os.ReadFile("/proc/self/statm")
	f := strings.Fields(string(b))
	p, _ := strconv.ParseInt(f[1], 10, 64)
	return p * int64(os.Getpagesize())
}
func maxrss() int64 {
	var u syscall.Rusage
	syscall.Getrusage(0, &u)
	return u.Maxrss * 1024
}
func cpus() float64 {
	var u syscall.Rusage
	syscall.Getrusage(0, &u)
	return float64(u.Utime.Sec+u.Stime.Sec) + float64(u.Utime.Usec+u.Stime.Usec)/1e6
}

func swtch() {
	runtime.GOMAXPROCS(1)
	const n = 5_000_000
	var wg sync.WaitGroup
	wg.Add(2)
	t := time.Now()
	for k := 0; k < 2; k++ {
		go func() {
			for i := 0; i < n; i++ {
				runtime.Gosched()
			}
			wg.Done()
		}()
	}
	wg.Wait()
	out("switch", nsop(time.Since(t), 2*n), "ns/switch")
}

func spawnJoin() {
	runtime.GOMAXPROCS(1)
	const n = 2_000_000
	ch := make(chan struct{})
	t := time.Now()
	for i := 0; i < n; i++ {
		go func() { ch <- struct{}{} }()
		<-ch
	}
	out("spawn_join", nsop(time.Since(t), n), "ns/task")
	var wg sync.WaitGroup
	t = time.Now()
	for i := 0; i < n; i++ {
		wg.Add(1)
		go func() { wg.Done() }()
		wg.Wait()
	}
	out("spawn_join_wg", nsop(time.Since(t), n), "ns/task")
}

func spawnBatch() {
	const n = 1_000_000
	var wg sync.WaitGroup
	t := time.Now()
	wg.Add(n)
	for i := 0; i < n; i++ {
		go func() { wg.Done() }()
	}
	wg.Wait()
	out("spawn_batch_1M", nsop(time.Since(t), n), "ns/task")
}

func pingpong(p int) {
	runtime.GOMAXPROCS(p)
	const n = 2_000_000
	a, b := make(chan int), make(chan int)
	go func() {
		for v := range a {
			b <- v
		}
	}()
	t := time.Now()
	for i := 0; i < n; i++ {
		a <- i
		<-b
	}
	out(fmt.Sprintf("chan_unbuf_pingpong_%dw", p), nsop(time.Since(t), n), "ns/roundtrip")
	close(a)
}

func spsc(p int) {
	runtime.GOMAXPROCS(p)
	const n = 10_000_000
	c := make(chan int64, 128)
	t := time.Now()
	go func() {
		for i := int64(0); i < n; i++ {
			c <- i
		}
		close(c)
	}()
	s := int64(0)
	for v := range c {
		s += v
	}
	out(fmt.Sprintf("chan_buf_spsc_%dw", p), nsop(time.Since(t), n), "ns/item")
}

func mpmc(p int) {
	runtime.GOMAXPROCS(p)
	const per = 1_000_000
	c := make(chan int64, 128)
	var pw, cw sync.WaitGroup
	t := time.Now()
	for k := 0; k < 4; k++ {
		pw.Add(1)
		go func() {
			for i := int64(0); i < per; i++ {
				c <- i
			}
			pw.Done()
		}()
		cw.Add(1)
		go func() {
			s := int64(0)
			for v := range c {
				s += v
			}
			cw.Done()
		}()
	}
	pw.Wait()
	close(c)
	cw.Wait()
	out(fmt.Sprintf("chan_mpmc_%dw", p), nsop(time.Since(t), 4*per), "ns/item")
}

func select2(p int, buf int) {
	runtime.GOMAXPROCS(p)
	const per = 2_000_000
	a, b := make(chan int64, buf), make(chan int64, buf)
	prod := func(c chan int64) {
		for i := int64(0); i < per; i++ {
			c <- i
		}
	}
	t := time.Now()
	go prod(a)
	go prod(b)
	s := int64(0)
	for i := 0; i < 2*per; i++ {
		select {
		case v := <-a:
			s += v
		case v := <-b:
			s += v
		}
	}
	out(fmt.Sprintf("select_2_cap%d_%dw", buf, p), nsop(time.Since(t), 2*per), "ns/item")
}

func mutexc(p int) {
	runtime.GOMAXPROCS(p)
	const per = 1_000_000
	var mu sync.Mutex
	var wg sync.WaitGroup
	cnt := 0
	t := time.Now()
	for k := 0; k < 8; k++ {
		wg.Add(1)
		go func() {
			for i := 0; i < per; i++ {
				mu.Lock()
				cnt++
				mu.Unlock()
			}
			wg.Done()
		}()
	}
	wg.Wait()
	if cnt != 8*per {
		panic("count")
	}
	out(fmt.Sprintf("mutex_contended_%dw", p), nsop(time.Since(t), 8*per), "ns/op")
}

func memParked(n int) {
	runtime.GC()
	debug.FreeOSMemory()
	r0 := rss()
	c := make(chan int)
	var wg sync.WaitGroup
	wg.Add(n)
	t := time.Now()
	for i := 0; i < n; i++ {
		go func() { wg.Done(); <-c }()
	}
	wg.Wait()
	d := time.Since(t)
	time.Sleep(50 * time.Millisecond)
	r1 := rss()
	out(fmt.Sprintf("mem_parked_%d", n), float64(r1-r0)/float64(n), "bytes/task")
	out(fmt.Sprintf("create_parked_%d", n), nsop(d, n), "ns/task")
	close(c)
}

func sky(c chan int64, num, size, div int64) {
	if size == 1 {
		c <- num
		return
	}
	rc := make(chan int64)
	for i := int64(0); i < div; i++ {
		go sky(rc, num+i*(size/div), size/div, div)
	}
	var s int64
	for i := int64(0); i < div; i++ {
		s += <-rc
	}
	c <- s
}
func skynet() {
	t := time.Now()
	c := make(chan int64)
	go sky(c, 0, 1_000_000, 10)
	r := <-c
	d := time.Since(t)
	if r != 499999500000 {
		panic(r)
	}
	out("skynet", float64(d.Microseconds())/1000, "ms")
}

func timers1M() {
	const n = 1_000_000
	rng := rand.New(rand.NewSource(1))
	var wg sync.WaitGroup
	wg.Add(n)
	c0 := cpus()
	t := time.Now()
	for i := 0; i < n; i++ {
		d := time.Duration(1+rng.Intn(1000)) * time.Millisecond
		go func() { time.Sleep(d); wg.Done() }()
	}
	tc := time.Since(t)
	wg.Wait()
	d := time.Since(t)
	out("timers_1M_wall", float64(d.Milliseconds()), "ms")
	out("timers_1M_create", float64(tc.Milliseconds()), "ms")
	out("timers_1M_cpu", (cpus()-c0)*1000, "cpu-ms")
	out("timers_1M_maxrss", float64(maxrss())/1048576, "MiB")
}

func timerAddCancel(p int) {
	runtime.GOMAXPROCS(p)
	rng := rand.New(rand.NewSource(1))
	live := make([]*time.Timer, 100_000)
	for i := range live {
		live[i] = time.AfterFunc(time.Hour+time.Duration(rng.Intn(3600))*time.Second, func() {})
	}
	const n = 2_000_000
	ds := make([]time.Duration, 4096)
	for i := range ds {
		ds[i] = time.Duration(60+rng.Intn(7200)) * time.Second
	}
	t := time.Now()
	for i := 0; i < n; i++ {
		x := time.AfterFunc(ds[i&4095], func() {})
		x.Stop()
	}
	out("timer_add_cancel", nsop(time.Since(t), n), "ns/pair")
	// reuse one timer object: Reset+Stop
	x := time.AfterFunc(time.Hour, func() {})
	t = time.Now()
	for i := 0; i < n; i++ {
		x.Reset(ds[i&4095])
		x.Stop()
	}
	out("timer_reset_stop", nsop(time.Since(t), n), "ns/pair")
	runtime.KeepAlive(live)
}

func wakeLatency() {
	const n = 2000
	lat := make([]int64, 0, n)
	c := make(chan time.Time)
	done := make(chan bool)
	go func() {
		for t := range c {
			lat = append(lat, int64(time.Since(t)))
		}
		done <- true
	}()
	go func() {
		runtime.LockOSThread()
		for i := 0; i < n; i++ {
			ts := syscall.Timespec{Nsec: 1_000_000}
			syscall.Nanosleep(&ts, nil)
			c <- time.Now()
		}
		close(c)
	}()
	<-done
	sort.Slice(lat, func(i, j int) bool { return lat[i] < lat[j] })
	out("wake_latency_p50", float64(lat[n/2]), "ns")
	out("wake_latency_p99", float64(lat[n*99/100]), "ns")
}

func fib(n, cut int) int {
	if n <= cut || n < 2 {
		return fibs(n)
	}
	var a, b int
	var wg sync.WaitGroup
	wg.Add(1)
	go func() { a = fib(n-1, cut); wg.Done() }()
	b = fib(n-2, cut)
	wg.Wait()
	return a + b
}

//go:noinline
func fibs(n int) int {
	if n < 2 {
		return n
	}
	return fibs(n-1) + fibs(n-2)
}
func pfib(cut int) {
	t := time.Now()
	r := fib(30, cut)
	d := time.Since(t)
	if r != 832040 {
		panic(r)
	}
	out(fmt.Sprintf("parallel_fib30_cut%d", cut), float64(d.Microseconds())/1000, "ms")
}

func main() {
	arg := func(i, def int) int {
		if len(os.Args) > i {
			v, _ := strconv.Atoi(os.Args[i])
			return v
		}
		return def
	}
	switch os.Args[1] {
	case "switch":
		swtch()
	case "spawn_join":
		spawnJoin()
	case "spawn_batch":
		spawnBatch()
	case "pingpong":
		pingpong(arg(2, 1))
	case "spsc":
		spsc(arg(2, 2))
	case "mpmc":
		mpmc(arg(2, 2))
	case "select2":
		select2(arg(2, 2), arg(3, 0))
	case "mutex":
		mutexc(arg(2, 2))
	case "mem":
		memParked(arg(2, 100000))
	case "skynet":
		skynet()
	case "timers":
		timers1M()
	case "timer_cancel":
		timerAddCancel(1)
	case "wake":
		wakeLatency()
	case "fib":
		pfib(arg(2, 1))
	case "yield_many":
		yieldMany()
	case "pipeline":
		pipeline(arg(2, 2), arg(3, 1000))
	case "idle":
		idle()
	case "cgo":
		cgoBench()
	case "block1000":
		block1000()
	case "echo":
		echoServer(os.Args[2])
	case "hello":
		helloBare(os.Args[2])
	case "hellostd":
		helloStd(os.Args[2])
	default:
		panic("unknown bench")
	}
}
