/* SPDX-License-Identifier: MIT */
/* expect: not sendable: it must stay where it is */
#include <weft.hpp>
struct session {
    int socket;
};
template <>
struct weft::sendable<session> : std::false_type {};
weft::chan<session> sessions;
