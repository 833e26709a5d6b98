/* SPDX-License-Identifier: MIT */
/* Connections under races: released and shut down while others use them, dialled and given up at any moment, listeners that go with clients in their queue. */
#include <sys/socket.h>
#include <unistd.h>

#include "departs.h"
#include "stress/actor.h"

static void open_pair(int fd[2]) { CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0); }

/* ---- a descriptor that is given back is used by its number at the same time ---- */

/* Until it has read what was written, whoever knows the descriptor in between. */
static int read_by_number(void *arg) {
    int fd = *(int *)arg;
    char c;
    ssize_t n;
    do {
        n = weft_fd_read(fd, &c, 1, WEFT_FOREVER);
    } while (n == WEFT_ECLOSED);
    CHECK_EQ(n, 1);
    return 0;
}
static int release_race(void *arg) {
    uint64_t rnd = test_random();
    for (long i = (intptr_t)arg; i > 0; i--) {
        int fd[2];
        weft_conn *c;
        open_pair(fd);
        CHECK_EQ(weft_conn_adopt(&c, fd[0]), 0);
        weft_scope s;
        weft_scope_begin(&s, NULL);
        for (int k = 0; k < 2; k++) CHECK_EQ(weft_spawn(&s, read_by_number, fd), 0);
        for (uint64_t k = test_below(&rnd, 4); k; k--) weft_yield();
        CHECK_EQ(weft_conn_release(c), fd[0]);
        for (uint64_t k = test_below(&rnd, 3); k; k--) weft_yield();
        CHECK_EQ(write(fd[1], "xx", 2), 2);
        CHECK_EQ(weft_scope_end(&s), 0);
        CHECK_EQ(weft_fd_close(fd[0]), 0);
        CHECK_EQ(weft_fd_close(fd[1]), 0);
    }
    return 0;
}
static void check_release(int workers) { run_and_close_all(workers, release_race, test_scale(10000, 100)); }
TEST(net_stress, a_released_descriptor_may_be_used_at_once_1) { check_release(1); }
TEST(net_stress, a_released_descriptor_may_be_used_at_once_2) { check_release(2); }
TEST(net_stress, a_released_descriptor_may_be_used_at_once_4) { check_release(4); }
TEST(net_stress, a_released_descriptor_may_be_used_at_once_8) { check_release(8); }

/* ---- shutting down one that is being closed does nothing to the next of its number ---- */

static int shut_until_closed(void *arg) {
    weft_conn *c = arg;
    char text[WEFT_ADDR_MAX];
    int err;
    do {
        (void)weft_conn_local(c, text, sizeof text);
        err = weft_conn_shutdown(c, SHUT_RDWR);
        weft_yield();
    } while (err == 0);
    CHECK_EQ(err, WEFT_ECLOSED);
    weft_conn_unref(c);
    return 0;
}
static int shutdown_race(void *arg) {
    for (long i = (intptr_t)arg; i > 0; i--) {
        int old[2], next[2];
        weft_conn *c;
        open_pair(old);
        CHECK_EQ(weft_conn_adopt(&c, old[0]), 0);
        weft_scope s;
        weft_scope_begin(&s, NULL);
        for (int k = 0; k < 2; k++) CHECK_EQ(weft_spawn(&s, shut_until_closed, weft_conn_ref(c)), 0);
        for (int k = 0; k < 3; k++) weft_yield();
        CHECK_EQ(weft_conn_close(c), 0);
        open_pair(next); /* the same number, mostly */
        CHECK_EQ(weft_scope_end(&s), 0);
        CHECK_EQ(send(next[0], "x", 1, MSG_NOSIGNAL), 1);
        CHECK_EQ(close(next[0]) | close(next[1]) | close(old[1]), 0);
    }
    return 0;
}
static void check_shutdown(int workers) { run_and_close_all(workers, shutdown_race, test_scale(10000, 100)); }
TEST(net_stress, shutting_down_never_means_the_next_connection_2) { check_shutdown(2); }
TEST(net_stress, shutting_down_never_means_the_next_connection_4) { check_shutdown(4); }

/* ---- dialling, given up at any moment ---- */

static struct {
    weft_listener *l;
    char addr[WEFT_ADDR_MAX];
    atomic_long stood;
} hall;

static int accept_all(void *arg) {
    weft_conn *c;
    int err;
    (void)arg;
    while (!(err = weft_accept(hall.l, &c, WEFT_FOREVER))) CHECK_EQ(weft_conn_close(c), 0);
    CHECK(err == WEFT_ECLOSED || err == WEFT_ECANCELED);
    return 0;
}
static int dial_once(void *arg) {
    weft_conn *c;
    int64_t patience = (int64_t)(uintptr_t)arg;
    int err = weft_dial(&c, hall.addr, patience == 0 ? WEFT_FOREVER : patience == 1 ? WEFT_POLL : weft_after(patience));
    CHECK_MSG(!err || err == WEFT_ECANCELED || err == WEFT_ETIMEDOUT || err == WEFT_EAGAIN || err == -ECONNREFUSED ||
                  err == -ECONNRESET,
              "%s", weft_net_error());
    CHECK_EQ(err == 0, c != NULL);
    if (!err) atomic_fetch_add(&hall.stood, 1);
    CHECK_EQ(weft_conn_close(c), 0);
    return 0;
}
static int dial_race(void *arg) {
    uint64_t rnd = test_random();
    long rounds = (intptr_t)arg;
    weft_scope acceptors;
    CHECK_EQ(weft_tcp_listen(&hall.l, "localhost:0", NULL), 0); /* a name: each dial may look it up */
    CHECK_GT(weft_listener_addr(hall.l, hall.addr, sizeof hall.addr), 0);
    const char *port = strrchr(hall.addr, ':');
    weft_scope_begin(&acceptors, NULL);
    CHECK_EQ(weft_spawn(&acceptors, accept_all, NULL), 0);
    for (long i = 0; i < rounds; i++) {
        char name[WEFT_ADDR_MAX];
        if (i == rounds / 2) { /* from here on by a name: threads, several addresses, one after the other */
            snprintf(name, sizeof name, "localhost%s", port);
            memcpy(hall.addr, name, sizeof name);
            port = strrchr(hall.addr, ':');
            rounds -= rounds / 4;
        }
        weft_scope s;
        weft_scope_begin(&s, NULL);
        for (int k = 0; k < 4; k++)
            CHECK_EQ(
                weft_spawn(&s, dial_once, as_arg((intptr_t)test_below(&rnd, 3) * (intptr_t)(1 + test_below(&rnd, 100000)))), 0);
        for (uint64_t k = test_below(&rnd, 6); k; k--) weft_yield();
        if (test_below(&rnd, 2)) weft_scope_cancel(&s);
        CHECK_EQ(weft_scope_end(&s), 0);
    }
    weft_scope_cancel(&acceptors);
    CHECK_EQ(weft_scope_end(&acceptors), 0);
    CHECK_EQ(weft_listener_close(hall.l), 0);
    return 0;
}
static void check_dial(int workers) { run_and_close_all(workers, dial_race, test_scale(1000, 20)); }
TEST_T(net_stress, a_dial_is_given_up_at_any_moment_1, 120) { check_dial(1); }
TEST_T(net_stress, a_dial_is_given_up_at_any_moment_2, 120) { check_dial(2); }
TEST_T(net_stress, a_dial_is_given_up_at_any_moment_8, 120) { check_dial(8); }

/* ---- a listener that goes with clients in its queue ---- */

static int dial_and_read(void *arg) {
    weft_conn *c;
    char b;
    (void)arg;
    int err = weft_dial(&c, hall.addr, WEFT_FOREVER);
    CHECK_MSG(!err || err == -ECONNREFUSED || err == -ECONNRESET, "%s", weft_net_error());
    if (!err)
        (void)weft_conn_write(
            c, "x", 1, WEFT_FOREVER); /* a peer that went in the middle of the handshake says so only when it gets something */
    ssize_t n = err ? 0 : weft_conn_read(c, &b, 1, WEFT_FOREVER); /* nobody ever accepts it */
    CHECK_MSG(n == 0 || n == -ECONNRESET, "a read gave %zd", n);
    CHECK_EQ(weft_conn_close(c), 0);
    return 0;
}
static int queue_race(void *arg) {
    uint64_t rnd = test_random();
    for (long i = (intptr_t)arg; i > 0; i--) {
        bool local = test_below(&rnd, 2);
        char own[64]; /* others may run this at the same time */
        snprintf(own, sizeof own, "unix:@weft-stress-net-%d", (int)getpid());
        CHECK_EQ(weft_tcp_listen(&hall.l, local ? own : "127.0.0.1:0", &(weft_net_opts){.backlog = 2}), 0);
        CHECK_GT(weft_listener_addr(hall.l, hall.addr, sizeof hall.addr), 0);
        weft_scope s;
        weft_scope_begin(&s, NULL);
        for (int k = 0; k < (local ? 6 : 2); k++) CHECK_EQ(weft_spawn(&s, dial_and_read, NULL), 0);
        for (uint64_t k = test_below(&rnd, 20); k; k--) weft_yield();
        CHECK_EQ(weft_listener_close(hall.l), 0);
        CHECK_EQ(weft_scope_end(&s), 0);
    }
    return 0;
}
static void check_queue(int workers) { run_and_close_all(workers, queue_race, test_scale(1000, 20)); }
TEST_T(net_stress, a_listener_goes_with_clients_in_its_queue_1, 120) { check_queue(1); }
TEST_T(net_stress, a_listener_goes_with_clients_in_its_queue_4, 120) { check_queue(4); }

/* ---- the address is free when the listener has been closed, whoever is in the middle of an
 * accept ---- */

static int accept_until_closed(void *arg) {
    weft_listener *l = arg;
    weft_conn *c;
    int err;
    while ((err = weft_accept(l, &c, WEFT_POLL)) == WEFT_EAGAIN) continue;
    CHECK_EQ(err, WEFT_ECLOSED);
    weft_listener_unref(l);
    return 0;
}
static int address_race(void *arg) {
    uint64_t rnd = test_random();
    weft_listener *l;
    char addr[WEFT_ADDR_MAX];
    CHECK_EQ(weft_tcp_listen(&l, "127.0.0.1:0", NULL), 0);
    CHECK_GT(weft_listener_addr(l, addr, sizeof addr), 0);
    weft_scope s;
    weft_scope_begin(&s, NULL);
    for (long i = (intptr_t)arg; i > 0; i--) {
        for (int k = 0; k < 3; k++) CHECK_EQ(weft_spawn(&s, accept_until_closed, weft_listener_ref(l)), 0);
        for (uint64_t k = test_below(&rnd, 4); k; k--) weft_yield();
        CHECK_EQ(weft_listener_close(l), 0);
        int err = weft_tcp_listen(&l, addr, NULL);
        CHECK_MSG(err == 0, "%s", weft_net_error());
    }
    CHECK_EQ(weft_scope_end(&s), 0);
    CHECK_EQ(weft_listener_close(l), 0);
    return 0;
}
static void check_address(int workers) { run_and_close_all(workers, address_race, test_scale(3000, 50)); }
TEST_T(net_stress, the_address_of_a_closed_listener_is_free_2, 120) { check_address(2); }
TEST_T(net_stress, the_address_of_a_closed_listener_is_free_4, 120) { check_address(4); }

/* ---- a number that is released while somebody writes is known again at once, and stays so ---- */

static weft_conn *written;
static int written_fd;
static atomic_bool free_again;

static int write_on(void *arg) {
    (void)arg;
    ssize_t n;
    while ((n = weft_conn_write(written, "x", 1, WEFT_FOREVER)) > 0) continue;
    CHECK_EQ(n, WEFT_ECLOSED);
    weft_conn_unref(written);
    return 0;
}
/* Comes with the number all the time; what is sent to it in the end arrives. */
static int come_with_it(void *arg) {
    char c = 0;
    (void)arg;
    while (!atomic_load(&free_again)) {
        ssize_t n = weft_fd_recv(written_fd, &c, 1, 0, WEFT_POLL);
        if (n == 1 && c == 'y') return 0; /* it has just become free */
        CHECK_MSG(n == WEFT_EAGAIN || n == WEFT_ECLOSED, "%zd", n);
        weft_yield();
    }
    CHECK_EQ(weft_fd_recv(written_fd, &c, 1, 0, weft_after(60 * WEFT_SECOND)), 1);
    CHECK_EQ(c, 'y');
    return 0;
}
static int release_written(void *arg) {
    uint64_t random = test_random();
    for (intptr_t i = 0; i < (intptr_t)arg; i++) {
        int fd[2];
        weft_scope s;
        CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
        CHECK_EQ(weft_conn_adopt(&written, fd[0]), 0);
        weft_conn_ref(written);
        written_fd = fd[0];
        atomic_store(&free_again, false);
        weft_scope_begin(&s, NULL);
        CHECK_EQ(weft_spawn(&s, write_on, NULL), 0);
        for (int k = 0; k < 2; k++) CHECK_EQ(weft_spawn(&s, come_with_it, NULL), 0);
        for (uint64_t k = test_below(&random, 20); k; k--) weft_yield();
        CHECK_EQ(weft_conn_release(written), fd[0]);
        atomic_store(&free_again, true);
        CHECK_EQ(write(fd[1], "yy", 2), 2);
        CHECK_EQ(weft_scope_end(&s), 0);
        for (int k = 0; k < 2; k++) CHECK_EQ(weft_fd_close(fd[k]), 0);
    }
    return 0;
}
TEST_T(net_stress, a_number_released_while_somebody_writes_is_known_again_2, 120) {
    run_and_close_all(2, release_written, test_scale(1000, 20));
}
TEST_T(net_stress, a_number_released_while_somebody_writes_is_known_again_4, 120) {
    run_and_close_all(4, release_written, test_scale(1000, 20));
}
