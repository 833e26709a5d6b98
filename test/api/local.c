/* SPDX-License-Identifier: MIT */
/* Task-local storage. */
#include "api/panic.h"

static weft_key key, other;
static atomic_int destroyed;

static void destroy(void *value) { atomic_fetch_add(&destroyed, (int)(intptr_t)value); }

static void make_keys(void (*destructor)(void *)) {
    CHECK_EQ(weft_key_new(&key, destructor), 0);
    CHECK_EQ(weft_key_new(&other, NULL), 0);
    atomic_store(&destroyed, 0);
}

static void delete_keys(void) {
    CHECK_EQ(weft_key_delete(key), 0);
    CHECK_EQ(weft_key_delete(other), 0);
}

static int sets(void *arg) {
    CHECK(weft_local_get(key) == NULL);
    CHECK_EQ(weft_local_set(key, arg), 0);
    CHECK_EQ(weft_local_set(other, &key), 0);
    for (int i = 0; i < 20; i++) {
        weft_yield();
        CHECK_PTR(weft_local_get(key), arg);
        CHECK_PTR(weft_local_get(other), &key);
    }
    return 0;
}

static int many_set(void *arg) {
    (void)arg;
    weft_scope s;
    CHECK_EQ(weft_local_set(key, as_arg(1000)), 0);
    weft_scope_begin(&s, NULL);
    for (int i = 1; i <= 50; i++) CHECK_EQ(weft_spawn(&s, sets, as_arg(i)), 0);
    CHECK_EQ(weft_scope_end(&s), 0); /* some have run inside */
    CHECK_EQ(atomic_load(&destroyed), 50 * 51 / 2);
    CHECK_PTR(weft_local_get(key), as_arg(1000));
    CHECK_EQ(in_task(sets, as_arg(7)), 0);
    CHECK_EQ(atomic_load(&destroyed), 50 * 51 / 2 + 7);
    return 0;
}

TEST(local, each_task_has_values_of_its_own) {
    EACH_WORKERS(w) {
        make_keys(destroy);
        CHECK_EQ(run_on(w, many_set, NULL), 0);
        CHECK_EQ(atomic_load(&destroyed), 50 * 51 / 2 + 7 + 1000);
        delete_keys();
    }
}

/* ---- the end of a task ---- */

static char events[64];

static void note_destroy(void *value) {
    size_t n = strlen(events);
    events[n] = *(char *)value;
    events[n + 1] = 0;
}

static void note_exit(void *arg) {
    CHECK(weft_local_get(key) != NULL); /* still there */
    note_destroy(arg);
}

static int sets_and_exits(void *arg) {
    CHECK_EQ(weft_local_set(key, "d"), 0);
    CHECK_EQ(weft_at_exit(note_exit, "e"), 0);
    if (arg) weft_panic("local");
    return 0;
}

static int destroyed_after_exits(void *arg) {
    (void)arg;
    CHECK_EQ(in_task(sets_and_exits, NULL), 0);
    CHECK_EQ(in_child(sets_and_exits, NULL), 0);
    CHECK_EQ(in_task(sets_and_exits, "panic"), WEFT_EPANIC);
    CHECK_EQ(in_child(sets_and_exits, "panic"), WEFT_EPANIC);
    CHECK_STR(events, "edededed");
    return 0;
}

TEST(local, destructors_run_after_exits_and_after_panics) {
    EACH_WORKERS(w) {
        events[0] = 0;
        make_keys(note_destroy);
        CHECK_EQ(run_quietly(w, destroyed_after_exits, NULL), 0);
        delete_keys();
    }
}

static void set_again(void *value) {
    atomic_fetch_add(&destroyed, 1);
    CHECK_EQ(weft_local_set(key, value), 0);
}

TEST(local, destructors_that_set_values_again_run_four_times) {
    make_keys(set_again);
    CHECK_EQ(run_on(1, sets, as_arg(1)), 0);
    CHECK_EQ(atomic_load(&destroyed), 4);
}

static void panic_in_destructor(void *value) {
    atomic_fetch_add(&destroyed, 1);
    weft_panic("destroying %p", value);
}

static int with_bad_destructor(void *arg) {
    CHECK_EQ(weft_local_set(key, "x"), 0);
    return (int)(intptr_t)arg;
}

static int bad_destructors(void *arg) {
    (void)arg;
    CHECK_EQ(in_task(with_bad_destructor, NULL), WEFT_EPANIC);
    CHECK_EQ(in_child(with_bad_destructor, NULL), WEFT_EPANIC);
    CHECK_EQ(in_task(with_bad_destructor, as_arg(-9)), -9);
    CHECK_EQ(atomic_load(&destroyed), 3);
    CHECK_EQ(atomic_load(&reported), 3);
    return 0;
}

TEST(local, a_panic_in_a_destructor_is_contained) {
    EACH_WORKERS(w) {
        make_keys(panic_in_destructor);
        CHECK_EQ(run_quietly(w, bad_destructors, NULL), 0);
        delete_keys();
    }
}

static weft_key far_key;

static void set_far(void *value) {
    CHECK_EQ(weft_local_set(far_key, value), 0); /* the array moves meanwhile */
    atomic_fetch_add(&destroyed, 1);
}

TEST(local, a_destructor_may_set_a_value_that_makes_the_array_grow) {
    static weft_key between[40];
    make_keys(set_far);
    for (size_t i = 0; i < COUNT(between); i++) CHECK_EQ(weft_key_new(&between[i], NULL), 0);
    CHECK_EQ(weft_key_new(&far_key, destroy), 0);
    CHECK_EQ(run_on(1, sets, as_arg(10)), 0);
    CHECK_EQ(atomic_load(&destroyed), 11);
}

/* ---- keys ---- */

static int keys_are_checked(void *arg) {
    (void)arg;
    weft_key none = {0, 0}, wild = {0xffffffff, 1}, k, again;
    CHECK_EQ(weft_local_set(none, "x"), WEFT_EINVAL);
    CHECK_EQ(weft_local_set(wild, "x"), WEFT_EINVAL);
    CHECK(weft_local_get(none) == NULL && weft_local_get(wild) == NULL);
    CHECK_EQ(weft_key_delete(none), WEFT_EINVAL);
    CHECK_EQ(weft_key_new(&k, destroy), 0);
    CHECK_EQ(weft_local_set(k, as_arg(1)), 0);
    CHECK_EQ(weft_key_delete(k), 0);
    CHECK_EQ(weft_key_delete(k), WEFT_EINVAL);
    CHECK(weft_local_get(k) == NULL);
    CHECK_EQ(weft_local_set(k, "x"), WEFT_EINVAL);
    CHECK_EQ(weft_key_new(&again, destroy), 0); /* the same place: the old value is not seen, nor destroyed */
    CHECK(again.index == k.index && again.generation != k.generation);
    CHECK(weft_local_get(again) == NULL);
    return 0;
}

TEST(local, a_deleted_key_is_no_key) {
    CHECK_EQ(keys_are_checked(NULL), 0);
    run_each(keys_are_checked);
    CHECK_EQ(atomic_load(&destroyed), 0);
}

static int uses_all(void *arg) {
    weft_key *all = arg;
    for (int i = 0; i < WEFT_KEYS_MAX; i++) CHECK_EQ(weft_local_set(all[i], &all[i]), 0);
    for (int i = 0; i < WEFT_KEYS_MAX; i++) CHECK_PTR(weft_local_get(all[i]), &all[i]);
    return 0;
}

TEST(local, there_are_as_many_keys_as_promised) {
    static weft_key all[WEFT_KEYS_MAX];
    weft_key more;
    for (int i = 0; i < WEFT_KEYS_MAX; i++) CHECK_EQ(weft_key_new(&all[i], NULL), 0);
    CHECK_EQ(weft_key_new(&more, NULL), WEFT_ELIMIT);
    CHECK_EQ(run_on(2, uses_all, all), 0);
    CHECK_EQ(uses_all(all), 0);
    CHECK_EQ(weft_key_delete(all[77]), 0);
    CHECK_EQ(weft_key_new(&more, NULL), 0);
}

/* ---- plain threads ---- */

static void *thread_sets(void *arg) {
    CHECK(weft_local_get(key) == NULL);
    CHECK_EQ(weft_local_set(key, arg), 0);
    CHECK_PTR(weft_local_get(key), arg);
    return NULL;
}

TEST(local, plain_threads_have_values_too) {
    make_keys(destroy);
    CHECK_EQ(weft_local_set(key, as_arg(1000)), 0);
    for (int i = 1; i <= 3; i++) {
        pthread_t t;
        CHECK_EQ(pthread_create(&t, NULL, thread_sets, as_arg(i)), 0);
        CHECK_EQ(pthread_join(t, NULL), 0);
    }
    CHECK_EQ(atomic_load(&destroyed), 6); /* each at the end of its thread */
    CHECK_PTR(weft_local_get(key), as_arg(1000));
    CHECK_EQ(run_on(2, sets, as_arg(10)), 0);
    CHECK_EQ(atomic_load(&destroyed), 16);
    CHECK_PTR(weft_local_get(key), as_arg(1000));
}
