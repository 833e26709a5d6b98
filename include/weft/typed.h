/* SPDX-License-Identifier: MIT */
/* Typed channels: those of chan.h for elements of one type, with ends that only send or only receive.
 *
 *     WEFT_CHAN_TYPE(ints, int);
 *
 *     ints c = ints_new(16);
 *     ints_send(c, &v, WEFT_FOREVER);
 *
 * The compiler complains about a pointer to anything but an int, and makes the same instructions as for weft_chan_send. */
#ifndef WEFT_TYPED_H
#define WEFT_TYPED_H

#include <weft/select.h>
#include <weft/scope.h>
#include <weft/time.h>

struct weft_mutex;
struct weft_rwlock;
struct weft_cond;
struct weft_sem;
struct weft_waitgroup;
struct weft_once;
struct weft_barrier;

/* Your own types that must stay where they are: a list of WEFT_NOT_SENDABLE(type), one behind the other without commas. WEFT_CHAN_TYPE refuses
 * each of them, as it refuses weft's own scopes, timers, tickers and locks. Looked at where WEFT_CHAN_TYPE is used. */
#ifndef WEFT_NOT_SENDABLE_TYPES
#define WEFT_NOT_SENDABLE_TYPES
#endif

#ifdef __cplusplus
#define WEFT_NOT_SENDABLE(type) type,
#else
/* An entry of WEFT_NOT_SENDABLE_TYPES. */
#define WEFT_NOT_SENDABLE(type) type * : 0,
#endif

#define WEFT__NOT_SENDABLE_TYPES                                                                                               \
    WEFT_NOT_SENDABLE(struct weft_scope)                                                                                       \
    WEFT_NOT_SENDABLE(struct weft_timer)                                                                                       \
    WEFT_NOT_SENDABLE(struct weft_ticker)                                                                                      \
    WEFT_NOT_SENDABLE(struct weft_mutex)                                                                                       \
    WEFT_NOT_SENDABLE(struct weft_rwlock)                                                                                      \
    WEFT_NOT_SENDABLE(struct weft_cond)                                                                                        \
    WEFT_NOT_SENDABLE(struct weft_sem)                                                                                         \
    WEFT_NOT_SENDABLE(struct weft_waitgroup)                                                                                   \
    WEFT_NOT_SENDABLE(struct weft_once)                                                                                        \
    WEFT_NOT_SENDABLE(struct weft_barrier)

#ifdef __cplusplus
template <class T, class... Others>
struct weft__is_one_of {
    static constexpr bool value = false;
};
template <class T, class First, class... Others>
struct weft__is_one_of<T, First, Others...> {
    static constexpr bool value = weft__is_one_of<T, Others...>::value;
};
template <class T, class... Others>
struct weft__is_one_of<T, T, Others...> {
    static constexpr bool value = true;
};
template <class T>
struct weft__is_array_or_const {
    static constexpr bool value = false;
};
template <class T>
struct weft__is_array_or_const<const T> {
    static constexpr bool value = true;
};
template <class T>
struct weft__is_array_or_const<T[]> {
    static constexpr bool value = true;
};
template <class T, size_t n>
struct weft__is_array_or_const<T[n]> {
    static constexpr bool value = true;
};
template <class T, size_t n>
struct weft__is_array_or_const<const T[n]> {
    static constexpr bool value = true;
};
#define WEFT__CAN_BE_SENT(type) (!weft__is_one_of<type, WEFT__NOT_SENDABLE_TYPES WEFT_NOT_SENDABLE_TYPES void>::value)
#define WEFT__CAN_BE_COPIED(type) (__is_trivially_copyable(type) && !weft__is_array_or_const<type>::value)
#define WEFT__ASSERT static_assert
#else
#define WEFT__CAN_BE_SENT(type) _Generic((type *)0, WEFT__NOT_SENDABLE_TYPES WEFT_NOT_SENDABLE_TYPES default : 1)
/* An array decays where it is used, and what is const loses that: neither is then what it was. */
#define WEFT__CAN_BE_COPIED(type) _Generic(*(type *)0, type : 1, default : 0)
#define WEFT__ASSERT _Static_assert
#endif

#if defined(__GNUC__)
#define WEFT__TYPED static inline __attribute__((unused))
#else
#define WEFT__TYPED static inline
#endif

/* The channel of a handle, for a case of a select. gcc takes a handle that came as a parameter for memory, and then fills the case by way of
 * vectors, with two instructions more; this makes it forget where the pointer came from. */
static inline weft_chan *weft__scalar(weft_chan *c) {
#if defined(__GNUC__) && !defined(__clang__)
    __asm__("" : "+r"(c));
#endif
    return c;
}

/* WEFT_CHAN_TYPE(name, type); at file scope: channels for elements of this type. It declares name_elem, the type of the elements, and three
 * handles, which are passed by value.
 *
 * name is a channel: c.chan is the channel of chan.h behind it (NULL: there is none), c.tx its sending and c.rx its receiving end.
 * name_new(capacity), name_new_opts(&opts) for the other kinds of channel and their options (NULL: a rendezvous), name_ref, name_unref, name_send(c, &v, deadline), name_recv, name_try_send, name_try_recv, name_close,
 * name_is_closed, name_len, name_cap; in a select name_on_send(c, &v), name_on_send_open(c, &v, &open) and name_on_recv(c, &v, &open). Each is what it is in chan.h and select.h, with the same results.
 *
 * name_tx is the sending end: name_tx_send, name_tx_try_send, name_tx_on_send, name_tx_on_send_open, name_tx_close, name_tx_ref, name_tx_unref.
 *
 * name_rx is the receiving end: name_rx_recv, name_rx_try_recv, name_rx_on_recv, name_rx_ref, name_rx_unref.
 *
 * An element is copied byte by byte. A type for which that is wrong does not compile: scopes, timers, locks, what is in WEFT_NOT_SENDABLE_TYPES,
 * arrays (put them into a struct) and, in C++, what has a copy constructor (weft::chan of weft.hpp takes those). A struct that contains such
 * a type is not recognised: put it into the list. */
#define WEFT_CHAN_TYPE(name, type)                                                                                             \
    typedef type name##_elem;                                                                                                  \
    WEFT__ASSERT(WEFT__CAN_BE_SENT(name##_elem), #type " is not sendable: it must stay where it is; send a pointer to it");    \
    WEFT__ASSERT(WEFT__CAN_BE_COPIED(name##_elem), #type " is not sendable: it cannot be copied byte by byte; an array goes "  \
                                                         "into a struct");                                                     \
    typedef struct name##_tx {                                                                                                 \
        weft_chan *chan;                                                                                                       \
    } name##_tx;                                                                                                               \
    typedef struct name##_rx {                                                                                                 \
        weft_chan *chan;                                                                                                       \
    } name##_rx;                                                                                                               \
    typedef union name {                                                                                                       \
        weft_chan *chan;                                                                                                       \
        name##_tx tx;                                                                                                          \
        name##_rx rx;                                                                                                          \
    } name;                                                                                                                    \
    WEFT__TYPED_OWNER(name, name)                                                                                              \
    WEFT__TYPED_OWNER(name##_tx, name##_tx)                                                                                    \
    WEFT__TYPED_OWNER(name##_rx, name##_rx)                                                                                    \
    WEFT__TYPED_SEND(name, name, name##_elem)                                                                                  \
    WEFT__TYPED_SEND(name##_tx, name##_tx, name##_elem)                                                                        \
    WEFT__TYPED_RECV(name, name, name##_elem)                                                                                  \
    WEFT__TYPED_RECV(name##_rx, name##_rx, name##_elem)                                                                        \
    WEFT__TYPED name name##_new(size_t capacity) {                                                                             \
        name c;                                                                                                                \
        c.chan = weft_chan_new(sizeof(name##_elem), capacity);                                                                 \
        return c;                                                                                                              \
    }                                                                                                                          \
    WEFT__TYPED name name##_new_opts(const weft_chan_opts *opts) {                                                             \
        name c;                                                                                                                \
        c.chan = weft_chan_new_opts(sizeof(name##_elem), opts);                                                                \
        return c;                                                                                                              \
    }                                                                                                                          \
    WEFT__TYPED bool name##_is_closed(name c) {                                                                                \
        return weft_chan_is_closed(c.chan);                                                                                    \
    }                                                                                                                          \
    WEFT__TYPED size_t name##_len(name c) {                                                                                    \
        return weft_chan_len(c.chan);                                                                                          \
    }                                                                                                                          \
    WEFT__TYPED size_t name##_cap(name c) {                                                                                    \
        return weft_chan_cap(c.chan);                                                                                          \
    }                                                                                                                          \
    WEFT__ASSERT(sizeof(name) == sizeof(weft_chan *), "a handle is a pointer")

#define WEFT__TYPED_OWNER(handle, prefix)                                                                                      \
    WEFT__TYPED handle prefix##_ref(handle c) {                                                                                \
        c.chan = weft_chan_ref(c.chan);                                                                                        \
        return c;                                                                                                              \
    }                                                                                                                          \
    WEFT__TYPED void prefix##_unref(handle c) {                                                                                \
        weft_chan_unref(c.chan);                                                                                               \
    }

#define WEFT__TYPED_SEND(handle, prefix, type)                                                                                 \
    WEFT__TYPED int prefix##_send(handle c, const type *elem, weft_deadline deadline) {                                        \
        return weft_chan_send(c.chan, elem, deadline);                                                                         \
    }                                                                                                                          \
    WEFT__TYPED int prefix##_try_send(handle c, const type *elem) {                                                            \
        return weft_chan_try_send(c.chan, elem);                                                                               \
    }                                                                                                                          \
    WEFT__TYPED weft_case prefix##_on_send(handle c, const type *elem) {                                                       \
        return weft_on_send(weft__scalar(c.chan), elem);                                                                       \
    }                                                                                                                          \
    WEFT__TYPED weft_case prefix##_on_send_open(handle c, const type *elem, bool *open) {                                      \
        return weft_on_send_open(weft__scalar(c.chan), elem, open);                                                            \
    }                                                                                                                          \
    WEFT__TYPED int prefix##_close(handle c) {                                                                                 \
        return weft_chan_close(c.chan);                                                                                        \
    }

#define WEFT__TYPED_RECV(handle, prefix, type)                                                                                 \
    WEFT__TYPED int prefix##_recv(handle c, type *elem, weft_deadline deadline) {                                              \
        return weft_chan_recv(c.chan, elem, deadline);                                                                         \
    }                                                                                                                          \
    WEFT__TYPED int prefix##_try_recv(handle c, type *elem) {                                                                  \
        return weft_chan_try_recv(c.chan, elem);                                                                               \
    }                                                                                                                          \
    WEFT__TYPED weft_case prefix##_on_recv(handle c, type *elem, bool *open) {                                                 \
        return weft_on_recv(weft__scalar(c.chan), elem, open);                                                                 \
    }

#endif
