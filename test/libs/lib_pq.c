/* SPDX-License-Identifier: MIT */
/* libpq, unmodified. Each task has a session, sleeps in the server, and then waits there for a lock
 * that all of them want: by the calls that wait themselves, and by those that do not, beside
 * weft_fd_wait and selects. libpq closes its sockets with close(2). */
#include <glob.h>

#include "libs/server.h"

#ifndef WEFT_HAVE_LIB
static void check(void) { test_skip("libpq is not installed (libpq-dev)"); }
static void check_async(void) { check(); }
#else
#include <libpq-fe.h>

enum { TASKS = 200 };

static char options[160];

static PGconn *connect_pg(void) {
    PGconn *c = PQconnectdb(options);
    CHECK_MSG(PQstatus(c) == CONNECTION_OK, "%s", PQerrorMessage(c));
    return c;
}

static void must(PGconn *c, const char *sql) {
    PGresult *r = PQexec(c, sql);
    ExecStatusType rc = PQresultStatus(r);
    CHECK_MSG(rc == PGRES_COMMAND_OK || rc == PGRES_TUPLES_OK, "%s: %s", sql, PQerrorMessage(c));
    PQclear(r);
}

static int add_one(void *arg) {
    PGconn *c = connect_pg();
    (void)arg;
    must(c, "SELECT pg_sleep(0.1)");
    must(c, "BEGIN");
    must(c, "SELECT n FROM t FOR UPDATE");
    must(c, "UPDATE t SET n = n + 1");
    must(c, "COMMIT");
    PQfinish(c);
    return 0;
}

static int rows(void) {
    PGconn *c = connect_pg();
    PGresult *r = PQexec(c, "SELECT n FROM t");
    CHECK_EQ(PQntuples(r), 1);
    int n = atoi(PQgetvalue(r, 0, 0));
    PQclear(r);
    PQfinish(c);
    return n;
}

/* Where Debian and others put the server's programs, the newest last. */
static void find_program(const char *name, char *out, size_t size) {
    char pattern[64];
    glob_t g = {0};
    snprintf(pattern, sizeof pattern, "/usr/lib/postgresql/*/bin/%s", name);
    if (glob(pattern, 0, NULL, &g) != 0) (void)glob("/usr/bin/postgres", 0, NULL, &g);
    if (!g.gl_pathc) test_skip("PostgreSQL is not installed (postgresql)");
    snprintf(out, size, "%s", g.gl_pathv[g.gl_pathc - 1]);
    globfree(&g);
}

static void start_postgres(void) {
    char initdb[96], postgres[96], data[96];
    find_program("initdb", initdb, sizeof initdb);
    find_program("postgres", postgres, sizeof postgres);
    server_open("postgres"); /* it refuses to run as root */
    snprintf(data, sizeof data, "%s/data", server.dir);
    char *init[] = {initdb, "-D", data, "-U", "weft", "-A", "trust", "--no-sync", NULL};
    if (server_run(init) != 0) {
        server_show_log();
        test_fail(__FILE__, __LINE__, "initdb failed");
    }
    char *argv[] = {postgres, "-D",        data, "-k", server.dir, "-c", "listen_addresses=", "-c", "max_connections=300",
                    "-c",     "fsync=off", NULL};
    server_start(argv, ".s.PGSQL.5432", SIGQUIT);
    snprintf(options, sizeof options, "host=%s user=weft dbname=postgres sslmode=disable gssencmode=disable", server.dir);
}

/* ---- without waiting inside libpq ---- */

enum { SESSIONS = 30, ASYNC_TASKS = 16 };

/* Until its socket is ready: by weft_fd_wait and by a select in turn. */
static void wait_for(PGconn *c, int events, int round) {
    int fd = PQsocket(c), r;
    CHECK_GE(fd, 0);
    if (round % 2)
        r = weft_select(WEFT_FOREVER, weft_on_fd(fd, events));
    else
        r = weft_fd_wait(fd, events, WEFT_FOREVER);
    CHECK_MSG(r >= 0, "socket %d: %s", fd, weft_strerror(r));
}

static PGconn *connect_async(int round) {
    PGconn *c = PQconnectStart(options);
    CHECK(c && PQstatus(c) != CONNECTION_BAD);
    PostgresPollingStatusType next = PGRES_POLLING_WRITING;
    while (next != PGRES_POLLING_OK) {
        CHECK_MSG(next == PGRES_POLLING_READING || next == PGRES_POLLING_WRITING, "%s", PQerrorMessage(c));
        wait_for(c, next == PGRES_POLLING_READING ? WEFT_READABLE : WEFT_WRITABLE, round);
        next = PQconnectPoll(c);
    }
    CHECK_EQ(PQsetnonblocking(c, 1), 0);
    return c;
}

static int query_async(PGconn *c, const char *sql, int round) {
    int value = -1, left;
    CHECK_MSG(PQsendQuery(c, sql), "%s", PQerrorMessage(c));
    while ((left = PQflush(c)) == 1) wait_for(c, WEFT_WRITABLE, round);
    CHECK_EQ(left, 0);
    for (PGresult *r;; PQclear(r)) {
        while (PQisBusy(c)) {
            wait_for(c, WEFT_READABLE, round);
            CHECK_MSG(PQconsumeInput(c), "%s", PQerrorMessage(c));
        }
        if (!(r = PQgetResult(c))) return value;
        CHECK_MSG(PQresultStatus(r) == PGRES_TUPLES_OK, "%s", PQerrorMessage(c));
        value = atoi(PQgetvalue(r, 0, 0));
    }
}

/* One session after the other: the next one's socket has the number of the last one's, or of
 * another task's. */
static int sessions(void *arg) {
    int me = (int)(intptr_t)arg;
    for (int i = 0; i < SESSIONS; i++) {
        char sql[80];
        PGconn *c = connect_async(i);
        snprintf(sql, sizeof sql, "SELECT %d FROM pg_sleep(0.002)", me * SESSIONS + i);
        CHECK_EQ(query_async(c, sql, i), me * SESSIONS + i);
        PQfinish(c);
    }
    return 0;
}

static bool is_up(void *arg) {
    (void)arg;
    PGconn *c = PQconnectdb(options);
    bool ok = PQstatus(c) == CONNECTION_OK; /* it may still be starting */
    PQfinish(c);
    return ok;
}

static void check_async(void) {
    start_postgres();
    test_until(is_up, NULL);
    run_beside_a_heartbeat(test_scale(ASYNC_TASKS, 4), sessions, NULL);
    server_close(SIGINT);
}

static void check(void) {
    long tasks = test_scale(TASKS, 20);
    if (tasks > TASKS) tasks = TASKS;
    start_postgres();
    test_until(is_up, NULL);
    PGconn *c = connect_pg();
    must(c, "CREATE TABLE t (n integer)");
    must(c, "INSERT INTO t VALUES (0)");
    PQfinish(c);
    run_beside_a_heartbeat(tasks, add_one, NULL);
    CHECK_EQ(rows(), tasks);
    server_close(SIGINT);
}
#endif

TEST_T(postgres, sessions_sleep_and_wait_for_locks_on_the_server, 120) { check(); }
TEST_T(postgres, sockets_that_libpq_closes_are_waited_for_by_the_next_session, 120) { check_async(); }
