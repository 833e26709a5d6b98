/* SPDX-License-Identifier: MIT */
/* libcurl, unmodified: each task has a transfer that takes a while, since the server sends slowly, and they all go on at once. */
#include "libs/server.h"

#ifndef WEFT_HAVE_LIB
static void check(void) { test_skip("libcurl is not installed (libcurl4-openssl-dev)"); }
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

static void check(void) {
    static const char *const paths[] = {"/usr/sbin/nginx", "/usr/local/sbin/nginx", "/usr/bin/nginx", NULL};
    const char *nginx = server_find(paths, "nginx is not installed (nginx-light)");
    static char data[SIZE + 1];
    memset(data, 'w', SIZE);
    server_open(NULL);
    server_file("data", "%s", data);
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
    run_beside_a_heartbeat(test_scale(TASKS, 20), fetch, NULL);
    curl_global_cleanup();
    server_close(SIGTERM);
}
#endif

TEST_T(curl, slow_transfers_from_nginx_go_on_at_once, 120) { check(); }
