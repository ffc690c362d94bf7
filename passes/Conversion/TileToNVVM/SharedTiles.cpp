//===- SharedTiles.cpp - tiles in shared memory ---------------------------===//

#include "passes/Conversion/TileToNVVM/SharedTiles.h"

using namespace nsa::cuda;

SharedShape::SharedShape(tile::TileType type)
    : rows(type.getRows()), cols(type.getCols()) {}

int64_t SharedShape::atomVectors() const {
  return std::min<int64_t>(vectors() & -vectors(), 8);
}

int64_t SharedShape::swizzleShift() const {
  return llvm::Log2_64(8 / atomVectors());
}

int64_t SharedPool::allocate(int64_t bytes) {
  bytes = llvm::alignTo(bytes, alignment);
  int64_t offset = 0;
  auto *next = used.begin();
  while (next != used.end() && next->offset - offset < bytes) {
    offset = next->offset + next->bytes;
    ++next;
  }
  used.insert(next, Piece{offset, bytes});
  highest = std::max(highest, offset + bytes);
  return offset;
}

void SharedPool::release(int64_t offset) {
  llvm::erase_if(used,
                 [&](const Piece &piece) { return piece.offset == offset; });
}
