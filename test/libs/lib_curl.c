/* SPDX-License-Identifier: MIT */
/* libcurl, unmodified. Each task has a transfer that takes a while, since the server sends slowly,
 * and they all go on at once; and each drives several transfers by selects over their sockets (the
 * multi interface). libcurl closes its sockets with close(2). */
#include "libs/server.h"

#ifndef WEFT_HAVE_LIB
static void check(void) { test_skip("libcurl is not installed (libcurl4-openssl-dev)"); }
static void check_multi(void) { check(); }
#else
#include <curl/curl.h>

enum { TASKS = 300, SIZE = 60000, RATE_KB = 200 };

static char socket_path[96];

static size_t count_bytes(char *data, size_t size, size_t n, void *sum) {
    for (size_t i = 0; i < size * n; i++) CHECK_EQ(data[i], 'w');
    *(size_t *)sum += size * n;
    return size * n;
}

static int fetch(void *arg) {
    size_t sum = 0;
    long status = 0;
    CURL *c = curl_easy_init();
    CHECK(c);
    curl_easy_setopt(c, CURLOPT_UNIX_SOCKET_PATH, socket_path);
    curl_easy_setopt(c, CURLOPT_URL, "http://localhost/data");
    curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L); /* as in every program with threads */
    curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, count_bytes);
    curl_easy_setopt(c, CURLOPT_WRITEDATA, &sum);
    CURLcode rc = curl_easy_perform(c);
    CHECK_MSG(rc == CURLE_OK, "transfer %d: %s", (int)(intptr_t)arg, curl_easy_strerror(rc));
    curl_easy_getinfo(c, CURLINFO_RESPONSE_CODE, &status);
    CHECK_EQ(status, 200);
    CHECK_EQ(sum, SIZE);
    curl_easy_cleanup(c);
    return 0;
}

/* ---- several transfers driven by a select ---- */

enum { AT_ONCE = 4, ROUNDS = 25, SMALL = 1000, MULTI_TASKS = 12, SHORT_TIMER = 50 /* ms */ };

/* One task's: what libcurl wants to hear of. */
typedef struct {
    CURLM *multi;
    int fd[AT_ONCE], what[AT_ONCE]; /* -1: free */
    long timer;                     /* ms; -1: none */
} driver;

static int watch_socket(CURL *c, curl_socket_t fd, int what, void *arg, void *of_socket) {
    driver *d = arg;
    int at = 0;
    (void)c, (void)of_socket;
    while (at < AT_ONCE && d->fd[at] != fd) at++;
    for (int i = 0; at == AT_ONCE && i < AT_ONCE; i++)
        if (d->fd[i] < 0) at = i;
    CHECK_LT(at, AT_ONCE);
    d->fd[at] = what == CURL_POLL_REMOVE ? -1 : fd;
    d->what[at] = what;
    return 0;
}
static int set_timer(CURLM *multi, long ms, void *arg) {
    (void)multi;
    ((driver *)arg)->timer = ms;
    return 0;
}

/* Waits for a socket, and for timers that are part of a transfer; long ones only end one that makes
 * no progress, and here that must not happen. */
static int wait_for_one(driver *d) {
    weft_case k[AT_ONCE];
    for (int i = 0; i < AT_ONCE; i++) {
        int events = d->what[i] & CURL_POLL_IN ? WEFT_READABLE : 0;
        if (d->what[i] & CURL_POLL_OUT) events |= WEFT_WRITABLE;
        k[i] = weft_on_fd(d->fd[i], events);
    }
    bool timed = d->timer >= 0 && d->timer <= SHORT_TIMER;
    return weft_selectv(k, AT_ONCE, timed ? weft_after(d->timer * WEFT_MS) : WEFT_FOREVER);
}

static void drive(driver *d) {
    int running;
    CHECK_EQ(curl_multi_socket_action(d->multi, CURL_SOCKET_TIMEOUT, 0, &running), CURLM_OK);
    while (running) {
        int r = wait_for_one(d);
        CHECK_MSG(r >= 0 || r == WEFT_ETIMEDOUT, "%s", weft_strerror(r));
        int flags = r < 0 ? 0 : d->what[r] == CURL_POLL_INOUT ? CURL_CSELECT_IN | CURL_CSELECT_OUT : d->what[r];
        CHECK_EQ(curl_multi_socket_action(d->multi, r < 0 ? CURL_SOCKET_TIMEOUT : d->fd[r], flags, &running), CURLM_OK);
    }
}

static void transfer(driver *d) {
    size_t sum[AT_ONCE] = {0};
    CURL *c[AT_ONCE];
    for (int i = 0; i < AT_ONCE; i++) {
        CHECK(c[i] = curl_easy_init());
        curl_easy_setopt(c[i], CURLOPT_UNIX_SOCKET_PATH, socket_path);
        curl_easy_setopt(c[i], CURLOPT_URL, "http://localhost/small");
        curl_easy_setopt(c[i], CURLOPT_NOSIGNAL, 1L);
        curl_easy_setopt(c[i], CURLOPT_FORBID_REUSE, 1L); /* each has a socket of its own, and closes it */
        curl_easy_setopt(c[i], CURLOPT_WRITEFUNCTION, count_bytes);
        curl_easy_setopt(c[i], CURLOPT_WRITEDATA, &sum[i]);
        CHECK_EQ(curl_multi_add_handle(d->multi, c[i]), CURLM_OK);
    }
    drive(d);
    for (int i = 0; i < AT_ONCE; i++) {
        long status = 0;
        curl_easy_getinfo(c[i], CURLINFO_RESPONSE_CODE, &status);
        CHECK_EQ(status, 200);
        CHECK_EQ(sum[i], SMALL);
        CHECK_EQ(curl_multi_remove_handle(d->multi, c[i]), CURLM_OK);
        curl_easy_cleanup(c[i]);
    }
}

static int transfers(void *arg) {
    driver d = {.multi = curl_multi_init(), .timer = -1};
    (void)arg;
    CHECK(d.multi);
    for (int i = 0; i < AT_ONCE; i++) d.fd[i] = -1;
    curl_multi_setopt(d.multi, CURLMOPT_SOCKETFUNCTION, watch_socket);
    curl_multi_setopt(d.multi, CURLMOPT_SOCKETDATA, &d);
    curl_multi_setopt(d.multi, CURLMOPT_TIMERFUNCTION, set_timer);
    curl_multi_setopt(d.multi, CURLMOPT_TIMERDATA, &d);
    for (int i = 0; i < ROUNDS; i++) transfer(&d);
    CHECK_EQ(curl_multi_cleanup(d.multi), CURLM_OK);
    return 0;
}

/* ---- the server ---- */

static void start_nginx(void) {
    static const char *const paths[] = {"/usr/sbin/nginx", "/usr/local/sbin/nginx", "/usr/bin/nginx", NULL};
    const char *nginx = server_find(paths, "nginx is not installed (nginx-light)");
    static char data[SIZE + 1];
    memset(data, 'w', SIZE);
    server_open(NULL);
    server_file("data", "%s", data);
    server_file("small", "%.*s", SMALL, data);
    server_file("conf", /* names are relative to the directory */
                "daemon off; master_process off; pid pid; error_log stderr; events { worker_connections 2000; }\n"
                "http { access_log off; client_body_temp_path b; proxy_temp_path p; fastcgi_temp_path f; uwsgi_temp_path u;\n"
                "scgi_temp_path s; server { listen unix:%s/socket; root .; limit_rate %dk; } }\n",
                server.dir, RATE_KB);
    char conf[96];
    snprintf(conf, sizeof conf, "%s/conf", server.dir);
    snprintf(socket_path, sizeof socket_path, "%s/socket", server.dir);
    char *argv[] = {(char *)nginx, "-p", server.dir, "-e", "stderr", "-c", conf, NULL};
    server_start(argv, "socket", SIGKILL);
    CHECK_EQ(curl_global_init(CURL_GLOBAL_DEFAULT), 0);
}

static void check_with(long tasks, weft_fn *task) {
    start_nginx();
    run_beside_a_heartbeat(tasks, task, NULL);
    curl_global_cleanup();
    server_close(SIGTERM);
}
static void check(void) { check_with(test_scale(TASKS, 20), fetch); }
static void check_multi(void) { check_with(test_scale(MULTI_TASKS, 3), transfers); }
#endif

TEST_T(curl, slow_transfers_from_nginx_go_on_at_once, 120) { check(); }
TEST_T(curl, sockets_that_libcurl_closes_are_waited_for_by_the_next_transfer, 120) { check_multi(); }
