/* SPDX-License-Identifier: MIT */
/* Every size of stack, with every kind of guard. */
#include "api/common.h"

/* Touches a byte of each page of about `bytes` of stack, in one frame. */
static __attribute__((noinline)) int touch(size_t bytes) {
    volatile char *room = __builtin_alloca(bytes);
    for (size_t at = bytes; at > 4096; at -= 4096) room[at - 1] = (char)(at >> 12); /* downwards, as stacks grow */
    weft_yield();
    for (size_t at = bytes; at > 4096; at -= 4096) CHECK_EQ(room[at - 1], (char)(at >> 12));
    return 0;
}

static int touch_task(void *arg) { return touch((size_t)(intptr_t)arg); }

/* Large ones are touched in their upper 4 MiB only: it is the addresses that matter. */
static int one_of_each(void *arg) {
    (void)arg;
    size_t most = test_slow_tools() > 1 ? (size_t)64 << 20 : (size_t)1 << 30; /* tools leave less address space */
    for (size_t size = test_slow_tools() > 1 ? 64 << 10 : 16 << 10; size <= most; size *= 2) {
        weft_scope s;
        weft_task_opts o = {.name = "one of each", .stack_size = size};
        size_t use = size / (test_slow_tools() > 1 ? 4 : 2);
        if (use > 4 << 20) use = 4 << 20;
        weft_scope_begin(&s, NULL);
        for (int i = 0; i < 3; i++) CHECK_EQ(weft_spawn_opts(&s, touch_task, as_arg((intptr_t)use), &o), 0);
        CHECK_EQ(weft_scope_end(&s), 0);
    }
    return 0;
}

TEST(stack_classes, each_size_up_to_a_gigabyte_runs) { run_each(one_of_each); }

static int the_largest(void *arg) {
    (void)arg;
    weft_scope s;
    weft_task_opts o = {.name = "largest", .stack_size = (size_t)1 << 30};
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn_opts(&s, touch_task, as_arg(((intptr_t)1 << 30) - (1 << 20)), &o), 0); /* but for guard and top */
    return weft_scope_end(&s);
}

TEST_SOLO_T(stack_classes, a_gigabyte_can_be_used_down_to_its_guard, 120) {
    if (test_slow_tools() > 1) test_skip("tools need the memory for themselves");
    CHECK_EQ(run_on(2, the_largest, NULL), 0);
}

static int too_large(void *arg) {
    (void)arg;
    weft_scope s;
    weft_task *t = NULL;
    weft_task_opts o = {.name = "too large", .stack_size = ((size_t)1 << 30) + 1};
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn_opts(&s, return_int, NULL, &o), WEFT_EINVAL);
    CHECK_EQ(weft_task_start(&t, return_int, NULL, &o), WEFT_EINVAL);
    CHECK_EQ(weft_scope_end(&s), WEFT_EINVAL);
    return 0;
}

TEST(stack_classes, beyond_a_gigabyte_is_refused) { run_each(too_large); }

/* ---- guards ---- */

static int run_guarded(void *arg) {
    setenv("WEFT_STACK_GUARDS", arg, 1);
    CHECK_EQ(set_up(2), 0);
    CHECK_EQ(weft_block_on(one_of_each, NULL), 0);
    weft_stats st;
    weft_stats_get(&st);
    CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
    return (int)st.stack_guards;
}

TEST(stack_classes, the_stats_tell_which_guards_there_are) {
    static const struct {
        const char *guards;
        int most;
    } kinds[] = {{"region", 3}, {"protect", 2}, {"canary", 1}};
    for (size_t i = 0; i < COUNT(kinds); i++) {
        struct test_child c;
        test_child(run_guarded, (void *)(uintptr_t)kinds[i].guards, &c);
        CHECK_MSG(c.exit_code > 0 && c.exit_code <= kinds[i].most, "%s: exit %d, signal %d:\n%s", kinds[i].guards, c.exit_code,
                  c.signal, c.out);
        if (i > 0) CHECK_EQ(c.exit_code, kinds[i].most); /* these two always work */
    }
}
