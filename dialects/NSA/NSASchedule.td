//===- NSASchedule.td - machines, and kernels cut for them ------*- tablegen -*-===//

#ifndef NSA_DIALECTS_NSA_NSASCHEDULE_TD
#define NSA_DIALECTS_NSA_NSASCHEDULE_TD

include "dialects/NSA/NSADialect.td"
include "mlir/IR/AttrTypeBase.td"

def NSA_MachineAttr : AttrDef<NSA_Dialect, "Machine"> {
  let mnemonic = "machine";
  let summary = "what runs the programs of kernels";
  let description = [{
    How many programs run at once, and rows of one MMA of 16-bit tiles: 16, or 64
    where four warps multiply together; 0 without tensor cores. Attribute
    `nsa.machine` of a module; without it, a few CPU threads, each with a cache of
    its own. What a kernel computes is the same for every machine but for the order
    of long sums.

    ```mlir
    module attributes {nsa.machine = #nsa.machine<processors = 132, mma_rows = 64>} {}
    ```
  }];
  let parameters = (ins "int64_t":$processors, "int64_t":$mma_rows);
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    /// That of the module of `op`.
    static MachineAttr of(::mlir::Operation *op);

    /// Whether programs are many and small: redundant computation is preferred
    /// over serial work.
    bool isParallel() const { return getProcessors() > 1; }
    bool hasTensorCores() const { return getMmaRows() != 0; }
    /// Rows of one MMA of a warpgroup; 0 without them.
    int64_t getWarpgroupRows() const {
      return getMmaRows() == 64 ? getMmaRows() : 0;
    }
    /// Programs that fill the machine: the number to use where each program has
    /// a fixed cost, and the most parts of a sum to which each contributes.
    int64_t getPrograms() const {
      return isParallel() ? 4 * getProcessors() : 64;
    }
    /// Approximate elements per program of kernels over flat tensors or rows: on
    /// a GPU 16, in pieces of 16 bytes, for each of 256 threads.
    int64_t getElementsPerProgram() const {
      return isParallel() ? 4096 : 16384;
    }
    /// The longest tile of a flat tensor.
    int64_t getElementsPerTile() const { return isParallel() ? 4096 : 1024; }
    /// Rows of `width` elements that a program treats at once. With several,
    /// threads that share a row need not wait for others.
    int64_t getRowsAtOnce(int64_t width) const;
    /// Columns of partial sums that a program adds, at most, and how many of
    /// the rows at once.
    int64_t getSumColumns() const { return isParallel() ? 64 : 256; }
    int64_t getSumRows() const { return isParallel() ? 16 : 1; }
    /// Elements of the parts of a table that programs scatter to; 0 for none.
    int64_t getScatterElements() const {
      return isParallel() ? int64_t(1) << 25 : 0;
    }
    /// Rows of a tile of (query, head of the group) pairs are a multiple of it
    /// if that is not many.
    int64_t getRowMultiple() const { return hasTensorCores() ? 16 : 1; }
    /// Tiles along one dimension of attention are a multiple of it: tensor
    /// cores multiply 16 rows or elements of a sum, 8 columns.
    int64_t getTileMultiple() const { return hasTensorCores() ? 16 : 8; }
    /// Columns of tiles of scores that have a halo are a multiple of it.
    int64_t getColumnMultiple() const { return hasTensorCores() ? 8 : 1; }
    /// The fewest queries of a group that fill the rows of an MMA.
    int64_t getLeastQueries(int64_t group) const {
      return (getRowMultiple() + group - 1) / group;
    }
    /// The smallest number of queries from `queries` on which gives such rows;
    /// `queries` itself if that gives more than `mostRows` rows. Or the largest
    /// up to `queries`, if there is one.
    int64_t alignQueries(int64_t queries, int64_t group,
                         int64_t mostRows) const;
    int64_t alignQueriesDown(int64_t queries, int64_t group,
                             int64_t mostRows) const;
  }];
}

#endif // NSA_DIALECTS_NSA_NSASCHEDULE_TD
