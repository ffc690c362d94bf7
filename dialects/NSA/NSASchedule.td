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

def NSA_AttentionKernel : I32EnumAttr<
    "AttentionKernel", "a kernel of attention that has schedules",
    [I32EnumAttrCase<"Forward", 0, "forward">,
     I32EnumAttrCase<"RotaryForward", 1, "rotary_forward">,
     I32EnumAttrCase<"QueryGrad", 2, "query_grad">,
     I32EnumAttrCase<"KeyValueGrad", 3, "key_value_grad">,
     I32EnumAttrCase<"SelectedForward", 4, "selected_forward">,
     I32EnumAttrCase<"SelectedQueryGrad", 5, "selected_query_grad">,
     I32EnumAttrCase<"SelectedKeyValueGrad", 6, "selected_key_value_grad">,
     I32EnumAttrCase<"QueryRows", 7, "query_rows">,
     I32EnumAttrCase<"Select", 8, "select">]> {
  let cppNamespace = "::nsa";
  let genSpecializedAttr = 0;
}

def NSA_SelectionForm : I32EnumAttr<
    "SelectionForm", "how kernels of the selected branch find keys",
    [I32EnumAttrCase<"Lists", 0, "lists">,
     I32EnumAttrCase<"Masks", 1, "masks">,
     I32EnumAttrCase<"Gathered", 2, "gathered">,
     I32EnumAttrCase<"Unions", 3, "unions">]> {
  let cppNamespace = "::nsa";
  let genSpecializedAttr = 0;
}

/// A number of a schedule, 0 for what the conversion to kernels chooses.
class NSA_Chosen<string what>
    : DefaultValuedParameter<"int64_t", "0", what>;

def NSA_ScheduleAttr : AttrDef<NSA_Dialect, "Schedule"> {
  let mnemonic = "schedule";
  let summary = "one way to cut a kernel of attention";
  let description = [{
    What is left out follows from the shape and the machine. Shorter sequences have
    smaller tiles.

    - `form`: how kernels of the selected branch find keys. From `lists` of the
      blocks that were selected, warps skip those that their queries did not
      select; `unions` of these lists, of which warpgroups multiply every block;
      `masks` of all blocks, which kernels go through; or queries are `gathered`
      for each block. Lists are for all machines, unions for warpgroups and the
      others for GPUs.
    - `queries`, `keys`: of a program and of the tiles that it iterates over, in
      multiples of the machine's; `blocks` that `nsa.select` scores at once.
    - `selected_queries` of a program of lists, at least; `selected_keys` of a tile,
      at most, since they divide a selection block; `gathered_queries`, which are
      gathered at once; `gathered_heads`, heads whose gathered queries have parts
      of sums at once: of some key heads, or of a group.
    - `column_parts`: programs that share the columns of what one computes
      otherwise. Each computes all scores.
    - `min_blocks`: programs per multiprocessor, at least, which limits registers.
      With 1 there is no producer, and threads have all registers.
    - `producer`: so many programs per multiprocessor with a producer warp that
      gathers queries by TMA, in `selected_key_value_grad` from lists on machines
      with warpgroups.
    - `spills`: bytes of spill stores and loads per thread that are accepted: for
      the widest heads a few cost less than more programs that share columns, for
      `nsa.select` less than smaller tiles.

    A dictionary `nsa.schedules` of an operation or a module has a list of them
    for each kernel, fastest first; the first one that the assembler does not refuse
    is taken:

    ```mlir
    module attributes {nsa.schedules = {forward = [#nsa.schedule<queries = 64, keys = 48>]}} {}
    ```
  }];
  let parameters = (ins
    DefaultValuedParameter<"::nsa::SelectionForm",
                           "::nsa::SelectionForm::Lists">:$form,
    NSA_Chosen<"queries">:$queries,
    NSA_Chosen<"keys">:$keys,
    NSA_Chosen<"queries of lists">:$selected_queries,
    NSA_Chosen<"keys of selected blocks">:$selected_keys,
    NSA_Chosen<"gathered queries">:$gathered_queries,
    NSA_Chosen<"heads of gathered queries">:$gathered_heads,
    NSA_Chosen<"selection blocks">:$blocks,
    DefaultValuedParameter<"int64_t", "1">:$column_parts,
    NSA_Chosen<"programs per multiprocessor">:$min_blocks,
    NSA_Chosen<"programs per multiprocessor with a producer">:$producer,
    DefaultValuedParameter<"int64_t", "0">:$spills);
  let assemblyFormat = "(`<` struct(params)^ `>`)?";
  let genVerifyDecl = 1;
}

#endif // NSA_DIALECTS_NSA_NSASCHEDULE_TD
