/* SPDX-License-Identifier: MIT */
/* SQLite, unmodified, from many tasks on two slots. Writers of one file wait for each other inside SQLite, asleep, while the one that they
 * wait for is parked in a channel: it could not go on if a slot stayed with a task that is away. */
#include <unistd.h>

#include "heartbeat.h"

#ifndef WEFT_HAVE_LIB
static void check(void) { test_skip("SQLite is not installed (libsqlite3-dev)"); }
#else
#include <sqlite3.h>

enum { TASKS = 60, BUSY_MS = 600000 };

static char path[] = "/tmp/weft-sqlite-XXXXXX";
static weft_chan *pace;

static void must(sqlite3 *db, const char *sql) {
    char *message = NULL;
    int rc = sqlite3_exec(db, sql, NULL, NULL, &message);
    CHECK_MSG(rc == SQLITE_OK, "%s: %s", sql, message ? message : "?");
}

static sqlite3 *open_db(void) {
    sqlite3 *db;
    CHECK_EQ(sqlite3_open(path, &db), SQLITE_OK);
    CHECK_EQ(sqlite3_busy_timeout(db, BUSY_MS), SQLITE_OK); /* it sleeps until it gets the lock */
    return db;
}

static int writer(void *arg) {
    char sql[96];
    int v;
    sqlite3 *db = open_db();
    must(db, "BEGIN IMMEDIATE");
    CHECK_EQ(weft_chan_recv(pace, &v, WEFT_FOREVER), 0); /* with the lock held */
    snprintf(sql, sizeof sql, "INSERT INTO t VALUES (%d, %d)", (int)(intptr_t)arg, v);
    must(db, sql);
    must(db, "COMMIT");
    CHECK_EQ(sqlite3_close(db), SQLITE_OK);
    return 0;
}

static int pacemaker(void *arg) {
    for (int i = 0; i < (int)(intptr_t)arg; i++) CHECK_EQ(weft_chan_send(pace, &i, WEFT_FOREVER), 0);
    return 0;
}

static int one_row(void *out, int n, char **values, char **names) {
    (void)n, (void)names;
    *(int *)out = atoi(values[0]);
    return 0;
}

static void check(void) {
    int fd = mkstemp(path), rows = 0;
    long tasks = test_scale(TASKS, 20);
    CHECK_GE(fd, 0);
    close(fd);
    sqlite3 *db = open_db();
    must(db, "PRAGMA synchronous = OFF");
    must(db, "CREATE TABLE t (a INTEGER PRIMARY KEY, b INTEGER)");
    pace = weft_chan_new(sizeof(int), 0);
    run_beside_a_heartbeat(tasks, writer, pacemaker);
    CHECK_EQ(sqlite3_exec(db, "SELECT count(*) FROM t", one_row, &rows, NULL), SQLITE_OK);
    CHECK_EQ(rows, tasks);
    CHECK_EQ(sqlite3_close(db), SQLITE_OK);
    weft_chan_unref(pace);
    unlink(path);
}
#endif

TEST_T(sqlite, writers_wait_for_each_other_inside_the_library, 120) { check(); }
