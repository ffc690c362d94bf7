//===- hash.c - XXH3, for files whose damage their hashes shall not show --===//

#define XXH_INLINE_ALL
#include <xxhash.h>

unsigned long long nsaHash(const void *data, size_t size) {
  return XXH3_64bits(data, size);
}
