/* SPDX-License-Identifier: MIT */
/* What allocates nothing and asks the kernel for nothing cannot be refused. That it does not is looked at here: while everything fails, it works, and
 * nothing that could fail was called. */
#include "fault/common.h"

#include <weft/debug.h>

static void nothing_was_asked(long before, const char *what) {
    CHECK_MSG(weft__fault_calls_here() == before, "%s made %ld calls that can fail", what, weft__fault_calls_here() - before);
}

/* The calls are counted on each thread by itself, and a task may go to another one: pinned. */
#define ASKS_NOTHING(call)                                                                                                     \
    do {                                                                                                                       \
        long before_ = weft__fault_calls_here();                                                                               \
        call;                                                                                                                  \
        nothing_was_asked(before_, #call);                                                                                     \
    } while (0)

static int n_sites;
static void count_site(const weft_stack_site *site, void *arg) { (void)site, (void)arg, n_sites++; }

static void look_at_channels(weft_chan *c) {
    weft_chan_stats stats;
    int v = 5;
    ASKS_NOTHING(CHECK_EQ(weft_chan_cap(c), 1));
    ASKS_NOTHING(CHECK_EQ(weft_chan_len(c), 0));
    ASKS_NOTHING(weft_chan_stats_get(c, &stats));
    ASKS_NOTHING(CHECK_EQ(weft_chan_try_recv(c, &v), WEFT_EAGAIN));
    ASKS_NOTHING(CHECK_EQ(weft_chan_try_send(c, &v), 0));
    ASKS_NOTHING(CHECK_EQ(weft_chan_try_send(c, &v), WEFT_EAGAIN));
    ASKS_NOTHING(CHECK_EQ(weft_chan_try_recv(c, &v), 0));
    ASKS_NOTHING(weft_chan_unref(weft_chan_ref(c)));
    ASKS_NOTHING(CHECK_EQ(weft_chan_is_closed(c), false));
    ASKS_NOTHING(CHECK_EQ(weft_chan_close(c), 0));
    ASKS_NOTHING(CHECK_EQ(weft_chan_is_closed(c), true));
    ASKS_NOTHING(CHECK_EQ(weft_chan_close(c), WEFT_ECLOSED));
}

static void look_about(void) {
    weft_stats stats;
    char text[WEFT_ADDR_MAX];
    weft_addr a = {.len = 0};
    weft_timer timer = {{0}};
    ASKS_NOTHING(CHECK_GT(weft_now(), 0));
    ASKS_NOTHING(CHECK_EQ(weft_at(7).ns, 7));
    ASKS_NOTHING(CHECK_GT(weft_after(HOUR).ns, HOUR));
    ASKS_NOTHING(CHECK(weft_version() != NULL));
    ASKS_NOTHING(CHECK(weft_strerror(WEFT_ECLOSED) != NULL));
    ASKS_NOTHING(CHECK_EQ(*weft_errno_location(), errno));
    ASKS_NOTHING(CHECK_EQ(weft_scope_deadline().ns, 0));
    ASKS_NOTHING(CHECK_EQ(weft_cancelled(), 0));
    ASKS_NOTHING(CHECK_EQ(weft_cancel_cause(), 0));
    ASKS_NOTHING((void)weft_addr_text(&a, text, sizeof text));
    ASKS_NOTHING((void)weft_net_error());
    ASKS_NOTHING(CHECK_GT(weft_thread_id(), 0));
    ASKS_NOTHING((void)weft_workers());
    ASKS_NOTHING(CHECK_EQ(weft_timer_armed(&timer), false));
    ASKS_NOTHING((void)weft_stack_sites(count_site, NULL));
    ASKS_NOTHING(weft_stats_get(&stats));
}

static void make_keys(void) {
    weft_key k;
    int rc = 0;
    ASKS_NOTHING(rc = weft_key_new(&k, NULL));
    CHECK_EQ(rc, 0);
    ASKS_NOTHING(CHECK_PTR(weft_local_get(k), NULL));
    ASKS_NOTHING(CHECK_EQ(weft_key_delete(k), 0));
    ASKS_NOTHING(CHECK_EQ(weft_key_delete(k), WEFT_EINVAL));
}

static void everything(uint64_t self) {
    weft_chan *c = weft_chan_new(sizeof(int), 1);
    CHECK(c);
    (void)weft_net_error(); /* the first makes a key, of which there are so many */
    weft__fault_arm(1, true);
    ASKS_NOTHING(CHECK_EQ(weft_self() != 0, self != 0));
    look_at_channels(c);
    look_about();
    make_keys();
    ASKS_NOTHING(weft_block_enter());
    ASKS_NOTHING(weft_block_exit());
    weft__fault_arm(0, false);
    weft_chan_unref(c);
}

static int in_a_task(void *arg) {
    weft_task *t = NULL;
    uint64_t id = 0;
    (void)arg;
    weft_pin();
    everything(1);
    CHECK_EQ(weft_task_start(&t, return_int, NULL, NULL), 0);
    weft__fault_arm(1, true);
    ASKS_NOTHING(id = weft_task_id(t));
    weft__fault_arm(0, false);
    CHECK_NE(id, 0);
    CHECK_EQ(weft_task_join(t, NULL, WEFT_FOREVER), 0);
    weft_unpin();
    return 0;
}

TEST(fault_none, what_looks_asks_for_nothing) {
    CHECK_EQ(run_on(1, in_a_task, NULL), 0); /* alone: nobody else needs the slot */
    everything(0);
}
