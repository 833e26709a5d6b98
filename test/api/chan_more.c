/* SPDX-License-Identifier: MIT */
/* Channels, continued: element sizes, references, plain threads, crowds, misuse. */
#include "api/common.h"

static weft_chan *new_chan(size_t elem_size, size_t capacity) {
    weft_chan *c = weft_chan_new(elem_size, capacity);
    CHECK(c);
    return c;
}

/* ---- element sizes ---- */

#define LARGEST 65536

struct sized {
    weft_chan *c;
    size_t size;
    int n;
};

static unsigned char byte_of(int element, size_t i) { return (unsigned char)((size_t)element * 7 + i * 13 + (i >> 8)); }

static int send_sized(void *arg) {
    struct sized *z = arg;
    unsigned char *buf = malloc(z->size + 1);
    for (int e = 0; e < z->n; e++) {
        for (size_t i = 0; i < z->size; i++) buf[i] = byte_of(e, i);
        CHECK_EQ(weft_chan_send(z->c, z->size ? buf : NULL, WEFT_FOREVER), 0);
        memset(buf, 0xff, z->size);
    }
    free(buf);
    return 0;
}

static void recv_sized(struct sized *z) {
    unsigned char *buf = malloc(z->size + 16);
    for (int e = 0; e < z->n; e++) {
        memset(buf, 0xcc, z->size + 16);
        CHECK_EQ(weft_chan_recv(z->c, z->size ? buf : NULL, WEFT_FOREVER), 0);
        for (size_t i = 0; i < z->size; i++) CHECK_EQ(buf[i], byte_of(e, i));
        for (size_t i = 0; i < 16; i++) CHECK_EQ(buf[z->size + i], 0xcc); /* not a byte more */
    }
    free(buf);
}

static int pass_sizes(void *arg) {
    (void)arg;
    static const size_t sizes[] = {0, 1, 2, 3, 4, 7, 8, 12, 16, 24, 100, 4097, LARGEST};
    static const size_t capacities[] = {0, 1, 5};
    for (size_t k = 0; k < COUNT(sizes); k++)
        for (size_t q = 0; q < COUNT(capacities); q++) {
            struct sized z = {new_chan(sizes[k], capacities[q]), sizes[k], 20};
            weft_scope s;
            weft_scope_begin(&s, NULL);
            CHECK_EQ(weft_spawn(&s, send_sized, &z), 0);
            recv_sized(&z);
            CHECK_EQ(weft_scope_end(&s), 0);
            CHECK_EQ(weft_chan_cap(z.c), capacities[q]);
            CHECK_EQ(weft_chan_len(z.c), 0);
            weft_chan_unref(z.c);
        }
    return 0;
}

TEST(chan_size, elements_of_any_size_arrive_whole) { run_each(pass_sizes); }

TEST(chan_size, sizes_that_cannot_be_are_refused) {
    CHECK(!weft_chan_new(SIZE_MAX, 1));
    CHECK(!weft_chan_new(1, SIZE_MAX));
    CHECK(!weft_chan_new(SIZE_MAX, SIZE_MAX));
    CHECK(!weft_chan_new((size_t)1 << 20, (size_t)1 << 20));
    CHECK(!weft_chan_new((size_t)1 << 33, 0));
    CHECK(!weft_chan_new((size_t)1 << 32, (size_t)1 << 32)); /* the product is 0 in 64 bits */
}

static int count_signals(void *arg) {
    (void)arg;
    weft_chan *c = new_chan(0, 1000);
    for (int i = 0; i < 1000; i++) CHECK_EQ(weft_chan_send(c, NULL, WEFT_FOREVER), 0);
    CHECK_EQ(weft_chan_len(c), 1000);
    CHECK_EQ(weft_chan_try_send(c, NULL), WEFT_EAGAIN);
    CHECK_EQ(weft_chan_close(c), 0);
    int n = 0;
    WEFT_CHAN_EACH(c, NULL) { n++; }
    CHECK_EQ(n, 1000);
    weft_chan_unref(c);
    return 0;
}

TEST(chan_size, elements_of_size_zero_are_counted) { run_each(count_signals); }

/* ---- references ---- */

TEST(chan_ref, the_last_reference_frees_it) {
    weft_chan_unref(NULL);
    for (int i = 0; i < 1000; i++) {
        weft_chan *c = new_chan(24, 4);
        CHECK_PTR(weft_chan_ref(c), c);
        weft_chan_ref(c);
        weft_chan_unref(c);
        weft_chan_unref(c);
        char v[24] = "still good";
        CHECK_EQ(weft_chan_send(c, v, WEFT_FOREVER), 0); /* freed together with its channel */
        CHECK_EQ(weft_chan_send(c, v, WEFT_FOREVER), 0);
        if (i % 2) CHECK_EQ(weft_chan_close(c), 0);
        weft_chan_unref(c);
    }
}

static int use_and_drop(void *arg) {
    weft_chan *c = arg;
    int v = 1;
    CHECK_EQ(weft_chan_send(c, &v, WEFT_FOREVER), 0);
    weft_chan_unref(c);
    return 0;
}

static int receive_all_and_drop(void *arg) {
    (void)arg;
    for (int i = 0; i < 300; i++) { /* whichever side comes last frees it */
        weft_chan *c = new_chan(sizeof(int), (size_t)(i % 2));
        weft_scope s;
        int v = 0;
        weft_scope_begin(&s, NULL);
        CHECK_EQ(weft_spawn(&s, use_and_drop, weft_chan_ref(c)), 0);
        CHECK_EQ(weft_spawn(&s, use_and_drop, weft_chan_ref(c)), 0);
        for (int k = 0; k < 2; k++) CHECK_EQ(weft_chan_recv(c, &v, WEFT_FOREVER), 0);
        weft_chan_unref(c);
        CHECK_EQ(weft_scope_end(&s), 0);
    }
    return 0;
}

TEST(chan_ref, each_side_may_drop_its_reference_at_once) { run_each(receive_all_and_drop); }

static atomic_int parked;

static int park_in_recv(void *arg) {
    atomic_fetch_add(&parked, 1);
    return weft_chan_recv(arg, NULL, WEFT_FOREVER);
}

static int unref_under_waiter(void *arg) {
    (void)arg;
    weft_chan *c = new_chan(sizeof(int), 0);
    CHECK_EQ(weft_go(park_in_recv, c), 0);
    task_wait(&parked, 1);
    weft_chan_unref(c);
    return 0;
}

static int run_unref_under_waiter(void *arg) {
    (void)arg;
    return run_on(1, unref_under_waiter, NULL);
}

static void *park_a_thread(void *c) {
    (void)weft_chan_send(c, NULL, WEFT_FOREVER);
    return NULL;
}
static bool has_sender(void *c) {
    weft_chan_stats s;
    weft_chan_stats_get(c, &s);
    return s.send_waiting == 1;
}
static int unref_under_thread(void *arg) {
    (void)arg;
    weft_chan *c = new_chan(0, 0);
    pthread_t t;
    CHECK_EQ(pthread_create(&t, NULL, park_a_thread, c), 0);
    test_until(has_sender, c);
    weft_chan_unref(c);
    return 0;
}

TEST(chan_ref, a_waiter_at_the_last_unref_aborts) {
    CHECK_DIES(run_unref_under_waiter, "still waits to receive");
    CHECK_DIES(unref_under_thread, "while a plain thread still waits to send");
}

/* ---- crowds ---- */

/* Every element is a number of its own; the receivers mark it. */
struct crowd {
    weft_chan *c;
    int per_sender, senders, receivers;
    atomic_int next_sender, senders_left;
    atomic_uchar *seen;
    atomic_int received;
};

static int crowd_send(void *arg) {
    struct crowd *w = arg;
    int first = atomic_fetch_add(&w->next_sender, 1) * w->per_sender;
    for (int i = 0; i < w->per_sender; i++) {
        int v = first + i;
        CHECK_EQ(weft_chan_send(w->c, &v, WEFT_FOREVER), 0);
    }
    if (atomic_fetch_sub(&w->senders_left, 1) == 1) CHECK_EQ(weft_chan_close(w->c), 0);
    return 0;
}

static int crowd_recv(void *arg) {
    struct crowd *w = arg;
    int v, last[64];
    memset(last, 0xff, sizeof last);
    WEFT_CHAN_EACH(w->c, &v) {
        CHECK_EQ(atomic_fetch_add(&w->seen[v], 1), 0);
        int sender = v / w->per_sender;
        CHECK_GT(v, last[sender]); /* what one sender sent comes in order to each receiver */
        last[sender] = v;
        atomic_fetch_add(&w->received, 1);
    }
    return 0;
}

static void crowd_begin(struct crowd *w, size_t capacity, int senders, int receivers, int per_sender) {
    memset(w, 0, sizeof *w);
    w->c = new_chan(sizeof(int), capacity);
    w->senders = senders;
    w->receivers = receivers;
    w->per_sender = per_sender;
    atomic_store(&w->senders_left, senders);
    w->seen = calloc((size_t)(senders * per_sender), sizeof *w->seen);
}

static void crowd_end(struct crowd *w) {
    CHECK_EQ(atomic_load(&w->received), w->senders * w->per_sender);
    for (int i = 0; i < w->senders * w->per_sender; i++) CHECK_EQ(atomic_load(&w->seen[i]), 1);
    free(w->seen);
    weft_chan_unref(w->c);
}

static int crowd_of_tasks(void *arg) {
    (void)arg;
    static const struct {
        size_t capacity;
        int senders, receivers;
    } shape[] = {{0, 1, 1}, {0, 8, 1}, {0, 1, 8}, {0, 8, 8}, {1, 4, 4}, {16, 8, 8}, {128, 1, 8}, {128, 16, 3}, {3, 50, 50}};
    for (size_t k = 0; k < COUNT(shape); k++) {
        struct crowd w;
        weft_scope s;
        crowd_begin(&w, shape[k].capacity, shape[k].senders, shape[k].receivers, (int)test_scale(2000, 100));
        weft_scope_begin(&s, NULL);
        for (int i = 0; i < w.receivers; i++) CHECK_EQ(weft_spawn(&s, crowd_recv, &w), 0);
        for (int i = 0; i < w.senders; i++) CHECK_EQ(weft_spawn(&s, crowd_send, &w), 0);
        CHECK_EQ(weft_scope_end(&s), 0);
        crowd_end(&w);
    }
    return 0;
}

TEST(chan_crowd, nothing_is_lost_or_doubled_among_tasks) { run_each(crowd_of_tasks); }

static void *crowd_send_thread(void *arg) {
    crowd_send(arg);
    return NULL;
}

static void *crowd_recv_thread(void *arg) {
    crowd_recv(arg);
    return NULL;
}

/* Half of each side are plain threads. `workers` 0: threads only, and no runtime. */
static void mixed_crowd(int workers, size_t capacity) {
    enum { SIDE = 4 };
    struct crowd w;
    pthread_t t[2 * SIDE];
    int tasks = workers ? SIDE : 0;
    crowd_begin(&w, capacity, SIDE + tasks, SIDE + tasks, (int)test_scale(500, 50));
    for (int i = 0; i < tasks; i++) {
        CHECK_EQ(weft_go(crowd_send, &w), 0);
        CHECK_EQ(weft_go(crowd_recv, &w), 0);
    }
    for (int i = 0; i < SIDE; i++) {
        CHECK_EQ(pthread_create(&t[i], NULL, crowd_send_thread, &w), 0);
        CHECK_EQ(pthread_create(&t[SIDE + i], NULL, crowd_recv_thread, &w), 0);
    }
    for (int i = 0; i < 2 * SIDE; i++) pthread_join(t[i], NULL);
    thread_wait(&w.received, w.senders * w.per_sender);
    if (workers) CHECK_EQ(weft_stop(WEFT_FOREVER), 0); /* the tasks are through with the channel */
    crowd_end(&w);
}

TEST(chan_crowd, nothing_is_lost_or_doubled_between_tasks_and_threads) {
    EACH_WORKERS(w) {
        for (size_t capacity = 0; capacity <= 9; capacity += 3) {
            CHECK_EQ(set_up(w), 0);
            mixed_crowd(w, capacity);
        }
    }
}

TEST(chan_crowd, nothing_is_lost_or_doubled_between_threads_alone) {
    mixed_crowd(0, 0);
    mixed_crowd(0, 7);
}

/* ---- plain threads on either side ---- */

static void *echo_thread(void *arg) {
    weft_chan **c = arg;
    int v;
    WEFT_CHAN_EACH(c[0], &v) {
        v++;
        CHECK_EQ(weft_chan_send(c[1], &v, WEFT_FOREVER), 0);
    }
    return NULL;
}

static int ask_thread(void *arg) {
    weft_chan **c = arg;
    for (int i = 0; i < 300; i++) {
        int v = i;
        CHECK_EQ(weft_chan_send(c[0], &v, WEFT_FOREVER), 0);
        CHECK_EQ(weft_chan_recv(c[1], &v, WEFT_FOREVER), 0);
        CHECK_EQ(v, i + 1);
    }
    CHECK_EQ(weft_chan_close(c[0]), 0);
    return 0;
}

TEST(chan_thread, a_task_and_a_thread_talk) {
    EACH_WORKERS(w) {
        for (size_t capacity = 0; capacity < 2; capacity++) {
            weft_chan *c[2] = {new_chan(sizeof(int), capacity), new_chan(sizeof(int), capacity)};
            pthread_t t;
            CHECK_EQ(pthread_create(&t, NULL, echo_thread, c), 0);
            CHECK_EQ(run_on(w, ask_thread, c), 0);
            pthread_join(t, NULL);
            weft_chan_unref(c[0]);
            weft_chan_unref(c[1]);
        }
    }
}

static void *close_thread(void *arg) {
    CHECK_EQ(weft_chan_close(arg), 0);
    return NULL;
}

static int closed_by_thread(void *arg) {
    (void)arg;
    for (int i = 0; i < 50; i++) {
        weft_chan *c = new_chan(sizeof(int), 0);
        pthread_t t;
        CHECK_EQ(pthread_create(&t, NULL, close_thread, c), 0);
        CHECK_EQ(weft_chan_recv(c, NULL, WEFT_FOREVER), WEFT_ECLOSED);
        pthread_join(t, NULL);
        weft_chan_unref(c);
    }
    return 0;
}

TEST(chan_thread, a_thread_closes_what_a_task_waits_on) {
    run_each(closed_by_thread);
    CHECK_EQ(closed_by_thread(NULL), 0);
}
