// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"net"
	"net/http"
)

func echoServer(addr string) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		panic(err)
	}
	for {
		c, err := l.Accept()
		if err != nil {
			panic(err)
		}
		go func() {
			defer c.Close()
			b := make([]byte, 1024)
			for {
				n, err := c.Read(b)
				if err != nil {
					return
				}
				if _, err = c.Write(b[:n]); err != nil {
					return
				}
			}
		}()
	}
}

var resp = []byte("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 12\r\n\r\nHello World\n")

func helloBare(addr string) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		panic(err)
	}
	for {
		c, err := l.Accept()
		if err != nil {
			panic(err)
		}
		go func() {
			defer c.Close()
			b := make([]byte, 4096)
			have := 0
			for {
				n, err := c.Read(b[have:])
				if err != nil {
					return
				}
				have += n
				if bytes.HasSuffix(b[:have], []byte("\r\n\r\n")) {
					have = 0
					if _, err = c.Write(resp); err != nil {
						return
					}
				}
			}
		}()
	}
}

func helloStd(addr string) {
	body := []byte("Hello World\n")
	http.ListenAndServe(addr, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Date"] = nil
		w.Write(body)
	}))
}
