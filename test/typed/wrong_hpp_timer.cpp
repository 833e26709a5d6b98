/* SPDX-License-Identifier: MIT */
/* expect: not sendable: it must stay where it is */
#include <weft.hpp>
weft::chan<weft_timer> timers;
