# SPDX-License-Identifier: MIT
# The front door. CMake does the work; `make help` lists what there is.

BUILD    ?= build
PREFIX   ?= /usr/local
JOBS     ?= $(shell nproc 2>/dev/null || echo 2)
GENERATOR := $(if $(shell command -v ninja 2>/dev/null),-G Ninja)
CMAKE_ARGS ?=

.PHONY: all build demo test bench check-all install reference format clean help

all: build

$(BUILD)/CMakeCache.txt:
	@tools/deps build
	@cmake -S . -B $(BUILD) $(GENERATOR) -DCMAKE_INSTALL_PREFIX=$(PREFIX) $(CMAKE_ARGS)

build: $(BUILD)/CMakeCache.txt
	@cmake --build $(BUILD) --target weft_all -j $(JOBS)

demo: build
	@$(BUILD)/examples/demo
	@printf '\nA web server under load: a task for each connection, on both sides (examples/hello_http.c, examples/load.c)\n'
	@$(BUILD)/examples/load --start $(BUILD)/examples/hello_http 200 3

test:
	@tools/deps test
	@BUILD=$(BUILD) JOBS=$(JOBS) tools/test-all

bench: build
	@tools/deps bench
	@BUILD=$(BUILD) ONLY="$(ONLY)" bench/run

check-all:
	@tools/deps check
	@BUILD=$(BUILD) JOBS=$(JOBS) tools/test-all --large

install: build
	@cmake --install $(BUILD) --prefix $(PREFIX)

reference:
	@tools/man index >docs/reference/README.md

format:
	@find include src test bench examples \( -name '*.[ch]' -o -name '*.hpp' \) -exec clang-format -i {} +

clean:
	@rm -rf $(BUILD)

help:
	@echo 'make               build $(BUILD)/libweft.a, libweft_pic.a, libweft.so, weft.pc and the examples'
	@echo 'make demo          build and run examples/demo.c, then a web server under load'
	@echo 'make test          all tests: plain, ASan+UBSan, TSan; one total line at the end'
	@echo 'make check-all     the whole matrix, for about an hour on two cores: valgrind, compilers, sanitizers, fall-backs, musl, soak, large models, AArch64 (docs/testing.md)'
	@echo 'make bench         compare with the peers on this machine; ONLY=name for a single benchmark'
	@echo 'make install       PREFIX=/usr/local, DESTDIR= for packaging'
	@echo 'make reference     write docs/reference/README.md anew from the headers'
	@echo 'make format        clang-format the tree'
	@echo 'make clean         remove $(BUILD)/'
	@echo 'Missing Debian packages are installed by tools/deps; WEFT_NO_DEPS=1 turns that off.'
