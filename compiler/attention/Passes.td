// The passes of attention, in the order in which they run (compiler/driver/pass_list.cpp).
include "mlir/Pass/PassBase.td"

def RingBlocks : Option<"blocks", "blocks", "int64_t", "2", "blocks of the sequence, one a device">;

def RecognizeAttention : Pass<"recognize-attention", "::mlir::ModuleOp"> {
  let summary = "softmax attention becomes one operation";
  let description = [{
    From the core ops of softmax attention to one onnx.Attention, before the backward pass is built, where a sequence is
    split over a ring (attention.h).

        s = Contract q, k;  x = s + mask;  p = softmax(x) in core ops;  out = Contract p, v
        ->  out, max, sum = onnx.Attention q, k, v, positions {score = scale, mask; weigh = dropout, p * v}

    From the softmax the graph is walked back through everything that has one entry for every pair of query and key,
    forward to the product with the values; what has only a query or only a key dimension, or neither, becomes an
    operand. Masks therefore need no patterns of their own: additive, boolean, padded, biased, scaled before or after,
    they are whatever is found between. Only a causal table is looked at closer: it becomes a comparison of positions,
    which travel with the keys.

    Attention whose sequence does not divide evenly into the blocks, or that is written in a form not known here, stays
    as it is (and every device then has all of its keys).
  }];
  let options = [RingBlocks];
}

def BalanceSequence : Pass<"balance-sequence", "::mlir::ModuleOp"> {
  let summary = "the sequence of causal attention in head-tail order";
  let description = [{
    The sequence of causal attention gets into head-tail order, so that every device of a ring has as much to do. With
    two blocks, four chunks:

        as it comes   [0 1 | 2 3]     block 0 sees 3 of 10 pairs of chunks, block 1 sees 7
        head-tail     [0 3 | 1 2]     both see 5

    Operations do not care in which order a dimension lies if they treat all its entries alike, so it is enough to
    permute what comes from outside along it: inputs and labels, position tables, indices. The walk over all dimensions
    that belong to the sequence stops, and everything stays as it comes, where an operation does care (a shift by one
    position, a running sum), where the order would be seen from outside, and where random numbers are drawn along it,
    which go by the global index.
  }];
  let options = [RingBlocks];
}

def RaiseAttention : Pass<"raise-attention", "::mlir::ModuleOp"> {
  let summary = "softmax attention becomes the operation that libraries have";
  let description = [{
    From the core ops of softmax attention to the one operation that libraries have (onnx.ScaledAttention), before the
    backward pass is built: on GPUs in 16 bits, where the sequence is not split over a ring.

        s = Contract q, k;  x = s * scale + mask;  p = softmax(x) in core ops;  out = Contract p, v
        ->  out, stats = onnx.ScaledAttention q, k, v [, bias] {scale, soft_cap, left_bound, right_bound}

    A soft cap, cap(x) = c tanh(x / c), is an attribute. Masks: a band of positions (causal, a sliding window) becomes
    the two bounds; any other, additive or boolean, one bias of the size it has before it is repeated. A bias that
    depends on a trained parameter (relative positions that are learned) is no mask: no library gives its gradient, so
    that attention stays as it is. So does attention with dropout, and any whose probabilities somebody else reads.
  }];
  let options = [
    Option<"keyMultiple", "key-multiple", "int64_t", "1", "the number of keys has to be a multiple of it">,
    Option<"featureMultiple", "feature-multiple", "int64_t", "LibraryAttention().featureMultiple",
           "the number of features has to be a multiple of it">,
    Option<"maxFeatures", "max-features", "int64_t", "LibraryAttention().maxFeatures",
           "the most features of a query, key or value">,
    Option<"anyBand", "any-band", "bool", "false",
           "any band of positions is taken, not only those that end in a causal mask">,
    Option<"softCap", "soft-cap", "bool", "false", "scores with a soft cap are taken">,
    Option<"parts", "parts", "int64_t", "1", "of the sequence on a ring, each of which the library has to take">,
    Option<"headWays", "head-ways", "int64_t", "1", "heads of keys are repeated until they divide into so many parts">
  ];
}

def GuardEmptyRows : Pass<"guard-empty-rows", "::mlir::ModuleOp"> {
  let summary = "a softmax without any key is 0, and so is its gradient";
  let description = [{
    A softmax row without any key divides 0 by 0, and exporters replace the NaN afterwards, which leaves its gradient
    NaN. Before the backward pass is built, this pass changes the maximum and the sum of such a row, so that its
    gradient is 0 as well.

        m = ReduceMax x;  e = Exp(x - Broadcast m);  s = ReduceSum e;  p = e / Broadcast s;  p' = Where(IsNaN p, 0, p)
        ->  empty = (m <= lowest / 2);  readers of m read Where(empty, 0, m), readers of s read Where(empty, 1, s)

    A row is empty when its maximum is -inf or near the type's lowest number: PyTorch 2.15 exports
    scaled_dot_product_attention with a mask of the lowest number where PyTorch itself masks with -inf.
  }];
}

def ExpandAttention : Pass<"expand-attention", "::mlir::ModuleOp"> {
  let summary = "attention becomes core ops on blocks of the sequence";
  let description = [{
    After the training phase Attention and AttentionGrad become core ops on the blocks of a sequence: ring attention. A
    turn is one step of the ring (attention.h has the formulas).

        %out, %max, %sum = onnx.Attention %q, %k, %v {blocks = 2}
        ->  turn 0: block p of the queries meets block p of the keys;  %k1 = onnx.Roll %k0 {dim = 0, distance = 1}
            turn 1: block p of the queries meets block p - 1 of the keys

    Causal attention has the sequence in head-tail order (BalanceSequence; "zigzag" elsewhere): block p is the chunks p
    and 2n - 1 - p. After turn 0 the mask hides half of every pair of blocks, and only the device decides which half:

        tail of the queries x head of the keys                                   always visible
        keys from an earlier device (p' < p): head x head    from a later one: tail x tail   visible; the rest is hidden

    A library's attention (ScaledAttention) becomes one for each pair of blocks, two for each turn in head-tail order.
    Their rows are merged by stats, the logarithms of the softmax's denominators:

        stats = log(exp stats a + exp stats b);  out = out a * exp(stats a - stats) + out b * exp(stats b - stats)
  }];
  let options = [RingBlocks];
}

def DecomposeAttention : Pass<"decompose-attention", "::mlir::ModuleOp"> {
  let summary = "attention as one operation becomes products and a softmax";
  let description = [{
    In a copy of the step, for the reference executor, ScaledAttention and its gradient become products and a softmax
    again, in fp32: what a library computes is compared with this.

        x = cap(scale * q k^T) + bias, -inf outside of the band;  m = max x;  l = sum exp(x - m);  stats = m + log l
        out = exp(x - stats) v
        backward (Dao et al. 2022, algorithm 4): p = exp(x - stats);  dv = p^T do;  dp = do v^T
                 dx = cap' * p * (dp - sum of do * out over the features);  dq = scale * dx k;  dk = scale * dx^T q
  }];
}
