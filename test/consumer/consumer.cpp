// SPDX-License-Identifier: MIT
// A program of somebody else: uses what is installed, as C++17.
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>
#include <weft.hpp>

struct args {
    weft_chan *out;
    int n;
};

static int square(void *arg) {
    args *a = static_cast<args *>(arg);
    int v = a->n * a->n;
    return weft_chan_send(a->out, &v, WEFT_FOREVER);
}

struct object {
    int *gone;
    ~object() { ++*gone; }
};

static int throws(void *arg) {
    object o{static_cast<int *>(arg)};
    weft_yield();
    throw std::runtime_error("enough");
}

// The same by the layer for C++.
static int layer() {
    weft::chan<std::string> c(2);
    weft::scope s;
    std::string all;
    s.spawn([&c] {
        for (const char *word : {"warp", " and ", "weft"}) c.send(word);
        c.close();
    });
    for (std::string &word : c) all += word;
    int rc = s.join();
    try {
        weft::scope failing;
        failing.spawn([] { throw std::runtime_error("given back"); });
        failing.join();
        return 1;
    } catch (const std::runtime_error &e) {
        return rc == 0 && all == "warp and weft" && e.what() == std::string("given back") ? 0 : 1;
    }
}

static int app(void *) {
    if (layer() != 0) return 1;
    int gone = 0;
    weft_panic_info info;
    if (weft_try(throws, &gone, &info) != WEFT_EPANIC || gone != 1 || !std::strstr(info.message, "enough")) return 1;
    weft_chan *c = weft_chan_new(sizeof(int), 0);
    weft_scope s;
    int sum = 0;
    weft_scope_begin(&s, nullptr);
    for (int i = 0; i < 8; i++)
        weft_spawn_with(&s, square, args{c, i});
    for (int i = 0; i < 8; i++) {
        int v = 0;
        bool open = false;
        if (weft_select(weft_after(10 * WEFT_SECOND), weft_on_recv(c, &v, &open)) != 0 || !open) return 1;
        sum += v;
    }
    int rc = weft_scope_end(&s);
    weft_chan_unref(c);
    std::printf("weft %s: %d\n", weft_version(), sum);
    return rc == 0 && sum == 140 ? 0 : 1;
}

int main() { return weft_run(app, nullptr, nullptr); }
