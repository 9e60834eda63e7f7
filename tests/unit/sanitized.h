// Whether a sanitizer watches, under which every step costs ten to twenty times as much: what it
// looks for shows in fewer of them, and the ordinary build takes them all.
#pragma once

namespace test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

// That a race shows to: only where two threads meet, and of nothing else that is wrong.
#if defined(__SANITIZE_THREAD__)
inline constexpr bool kThreadSanitized = true;
#else
inline constexpr bool kThreadSanitized = false;
#endif

}  // namespace test
