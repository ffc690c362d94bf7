//===- FakeStream.h - calls and work of the fake libraries ------*- C++ -*-===//

#ifndef NSA_TEST_UNIT_FAKECUDA_FAKESTREAM_H
#define NSA_TEST_UNIT_FAKECUDA_FAKESTREAM_H

#include <functional>
#include <string>

namespace fake {

/// Notes a call; the error to return, if the test asked for one.
int call(const char *name, const std::string &details = "");

/// Puts work on the stream, which takes so many seconds.
void enqueue(double seconds, std::function<void()> work);

} // namespace fake

#endif // NSA_TEST_UNIT_FAKECUDA_FAKESTREAM_H
