/* SPDX-License-Identifier: MIT */
/* hiredis, unmodified: every other task waits inside the library, on the server, for what the task behind it puts there. */
#include "libs/server.h"

#ifndef WEFT_HAVE_LIB
static void check(void) { test_skip("hiredis is not installed (libhiredis-dev)"); }
#else
#include <hiredis/hiredis.h>

enum { TASKS = 300 };

static char socket_path[96];

static redisContext *connect_redis(void) {
    redisContext *c = redisConnectUnix(socket_path);
    CHECK(c);
    CHECK_MSG(!c->err, "%s", c->errstr);
    return c;
}

static void take(redisContext *c, int key) {
    redisReply *r = redisCommand(c, "BLPOP key:%d 0", key);
    CHECK_MSG(r != NULL, "%s", c->errstr);
    CHECK_EQ(r->type, REDIS_REPLY_ARRAY);
    CHECK_EQ(r->elements, 2);
    CHECK_EQ(atoi(r->element[1]->str), 2 * key);
    freeReplyObject(r);
}

static void put(redisContext *c, int key) {
    redisReply *r = redisCommand(c, "RPUSH key:%d %d", key, 2 * key);
    CHECK_MSG(r != NULL, "%s", c->errstr);
    CHECK_EQ(r->type, REDIS_REPLY_INTEGER);
    freeReplyObject(r);
}

static int take_or_put(void *arg) {
    int i = (int)(intptr_t)arg;
    redisContext *c = connect_redis();
    if (i % 2)
        put(c, i / 2);
    else if (i + 1 < heart.tasks)
        take(c, i / 2);
    redisFree(c);
    return 0;
}

static void check(void) {
    static const char *const paths[] = {"/usr/bin/redis-server", "/usr/local/bin/redis-server", NULL};
    const char *redis = server_find(paths, "Redis is not installed (redis-server)");
    server_open(NULL);
    snprintf(socket_path, sizeof socket_path, "%s/socket", server.dir);
    char *argv[] = {(char *)redis,  "--port", "0",     "--unixsocket", socket_path, "--save", "",
                    "--maxclients", "2000",   "--dir", server.dir,     NULL};
    server_start(argv, "socket", SIGKILL);
    run_beside_a_heartbeat(test_scale(TASKS, 20), take_or_put, NULL);
    server_close(SIGTERM);
}
#endif

TEST_T(redis, tasks_wait_for_each_other_on_the_server, 120) { check(); }
