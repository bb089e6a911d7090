"""Chinese for what tables, claims and figures say: one table from English, with ``#`` for each number.

A text is looked up as it stands; then with ``#`` in place of its numbers, which are filled in again in their order;
then part by part, at line breaks, colons, commas and slashes. What names things, such as a method, stays as it is.
"""

import re
from collections.abc import Iterable
from typing import Any

from rlvr_jax.types import InvalidInput

LANGUAGES = ("en", "zh")

NUMBER = re.compile(r"(?<![A-Za-z_\d.])-?\d(?:[\d,]*\d)?(?:\.\d+)?(?:e[-+]?\d+)?")

#: What needs no translation: a formula, the name of a context; what has one: a Chinese character, a word.
FORMULA, CONTEXT = re.compile(r"\$[^$]*\$"), re.compile(r"(?:add|sub|mul1|mul2)_\d")
HAN, WORD = re.compile(r"[一-鿿]"), re.compile(r"[A-Za-z][A-Za-z0-9_]+")

#: Where a text falls into parts, and what joins them in Chinese.
JOINTS = (("\n", "\n"), ("; ", "；"), (": ", "："), (", ", "，"), (" / ", " / "), (" × ", " × "))


class Speaker:
    """Says texts in Chinese.

    Attributes:
        missing: Texts that were asked for, are not in the table, and so stayed English.
    """

    def __init__(self, names: Iterable[str] = ()):
        self.names, self.missing = set(names), set[str]()

    def __call__(self, text: str) -> str:
        """The text in Chinese.

        >>> Speaker()("cost 0.02: accuracy")
        '代价 0.02：准确率'
        """
        said = self._said(text)
        if said is None:
            self.missing.add(text)
            return text
        return said

    def _said(self, text: str) -> str | None:
        if text in CHINESE:
            return CHINESE[text]
        plain = FORMULA.sub("", text)
        words = [word for word in WORD.findall(plain) if word not in self.names and not CONTEXT.fullmatch(word)]
        if not words or HAN.search(text):
            return text
        pattern, numbers = NUMBER.sub("#", text), iter(NUMBER.findall(text))
        if pattern in CHINESE:
            return re.sub("#", lambda _: next(numbers), CHINESE[pattern])
        for joint, joined in JOINTS:
            if joint in text:
                parts = [self._said(part) for part in text.split(joint)]
                if None not in parts:
                    return joined.join(filter(None, parts))
        return None


def speaker(language: str, names: Iterable[str] = ()) -> Speaker | None:
    """What says texts in a language; None for English, in which they are written.

    Args:
        language: One of `LANGUAGES`.
        names: Words that stay as they are.

    Raises:
        InvalidInput: If the language is unknown.
    """
    if language not in LANGUAGES:
        raise InvalidInput(f"language is {language!r}; it must be one of {', '.join(LANGUAGES)}")
    return None if language == "en" else Speaker(names)


def names_in(results: Any) -> list[str]:
    """The names of methods in labelled results."""
    return [str(name) for name in results["method"].values.ravel()] if "method" in results.coords else []


#: Chinese by English, ``#`` for a number.
CHINESE: dict[str, str] = {
    # methods and worlds, as figures name them
    "GRPO": "GRPO",
    "RLOO": "RLOO",
    "no baseline": "无基线",
    "learned baseline": "学习的基线",
    "group mean": "组均值",
    "method": "方法",
    "Answer bandit": "答案老虎机",
    # metrics
    "accuracy": "准确率",
    "accuracy (fraction correct)": "准确率（正确比例）",
    "accuracy (truly correct)": "准确率（真正正确）",
    "accuracy by level": "各难度的准确率",
    "accuracy with reward offset #": "奖励偏移 # 时的准确率",
    "(fraction correct)": "（正确比例）",
    "final accuracy": "最终准确率",
    "final accuracy (fraction correct)": "最终准确率（正确比例）",
    "final error\n(fraction wrong, log scale)": "最终错误率\n（错误比例，对数坐标）",
    "final accuracy\nand reward": "最终准确率\n与奖励",
    "recovered accuracy": "恢复的准确率",
    "(difference)": "（差值）",
    "calls per problem": "每题调用次数",
    "final calls\nper problem": "最终每题\n调用次数",
    "call probability": "调用概率",
    "after training": "训练后",
    "call probability\nafter training": "训练后的\n调用概率",
    "before training": "训练前",
    "call probability by context": "各情境的调用概率",
    "hack rate": "作弊率",
    "hack rate (fraction)": "作弊率（比例）",
    "(fraction)": "（比例）",
    "final hack rate": "最终作弊率",
    "trained prompts": "训练过的题目",
    "unseen prompts": "未见过的题目",
    "verifier's reward": "验证器奖励",
    "tendency to hack": "作弊倾向",
    "tendency to hack (logit)": "作弊倾向（logit）",
    "tendency to\nhack (logit)": "作弊倾向\n（logit）",
    "groups without signal": "无信号的组",
    "groups without signal (fraction)": "无信号的组（比例）",
    "groups without\nsignal (fraction)": "无信号的组\n（比例）",
    "groups of equal outcome": "结果相同的组",
    "groups of equal outcome (fraction)": "结果相同的组（比例）",
    "groups of equal\noutcome (fraction)": "结果相同的组\n（比例）",
    "groups of mixed outcome": "结果不同的组",
    "groups all right or all wrong": "全对或全错的组",
    "push on calling": "对调用的推动",
    "(per group)": "（每组）",
    "KL to the reference (nats)": "与参考策略的 KL（nat）",
    "entropy (nats)": "熵（nat）",
    "exact": "精确值",
    # axes and their values
    "training step": "训练步",
    "step = #": "第 # 步",
    "# steps": "# 步",
    "reward offset": "奖励偏移",
    "reward offset #": "奖励偏移 #",
    "learning rate": "学习率",
    "learning rate (log scale)": "学习率（对数坐标）",
    "weight of the KL penalty": "KL 惩罚的权重",
    "weight of the KL penalty (log scale)": "KL 惩罚的权重（对数坐标）",
    "weight of the KL penalty (log scale, 0 at its left)": "KL 惩罚的权重（对数坐标，0 在其左）",
    "KL weight #": "KL 权重 #",
    "KL weight = #": "KL 权重 = #",
    "group size $G$ (samples per prompt)": "组大小 G（每题采样数）",
    "samples $k$ (log scale)": "采样数 k（对数坐标）",
    "pass@$k$,": "pass@k",
    "all prompts": "全部题目",
    "the hardest prompts": "最难的题目",
    "cost #": "代价 #",
    "cost of a call = #": "调用代价 = #",
    "cost of a call (reward)": "调用代价（奖励）",
    "verifier": "验证器",
    "faithful verifier": "忠实的验证器",
    "hack reward #": "作弊奖励 #",
    "never repaired": "从不修复",
    "repaired after #": "第 # 步后修复",
    "last step with the flawed verifier": "使用有缺陷验证器的最后一步",
    "level": "难度",
    "level (accuracy before training)": "难度（训练前的准确率）",
    "very hard": "很难",
    "hard": "难",
    "medium": "中等",
    "easy": "容易",
    "very hard #%": "很难 #%",
    "hard #%": "难 #%",
    "medium #%": "中等 #%",
    "easy #%": "容易 #%",
    "batch size": "批大小",
    "batch size #": "批大小 #",
    "group size": "组大小",
    "group size #": "组大小 #",
    "learning rate #": "学习率 #",
    "context": "情境",
    "context: difficulty and operation": "情境：难度与运算",
    "add": "加",
    "subtract": "减",
    "× one digit": "× 一位数",
    "× two digits": "× 两位数",
    "addition without carry": "无进位加法",
    "times one digit": "乘一位数",
    "times two digits": "乘两位数",
    "times two digits, large number": "乘两位数，大数",
    "cold start": "冷启动",
    "cold start alone": "仅冷启动",
    "cold start, then RL": "冷启动后强化学习",
    "without a cold start": "无冷启动",
    "after a cold start": "冷启动后",
    "RL alone": "仅强化学习",
    "SFT alone": "仅 SFT",
    "SFT + RL": "SFT + 强化学习",
    "untrained": "未训练",
    "yes": "是",
    "no": "否",
    "all": "全部",
    # seeds and intervals
    "seeds": "种子数",
    "share of the seeds": "种子的比例",
    "seeds drawn (log scale)": "抽取的种子数（对数坐标）",
    "seeds per method (log scale)": "每种方法的种子数（对数坐标）",
    "common seeds, paired": "共同种子，配对",
    "independent seeds": "独立种子",
    "$t$-interval": "t 区间",
    "percentile bootstrap": "百分位自助法",
    "intervals that hold the mean": "包含均值的区间",
    "width (accuracy, log scale)": "宽度（准确率，对数坐标）",
    "(a) distribution over seeds": "(a) 种子间的分布",
    "(b) to find a difference of #": "(b) 发现 # 的差异",
    "(c) coverage of # % intervals": "(c) # % 区间的覆盖率",
    "(d) width of the $t$-interval": "(d) t 区间的宽度",
    "standard deviation of final accuracy (log scale)": "最终准确率的标准差（对数坐标）",
    "task": "任务",
    "prompts": "题目顺序",
    "answers": "回答",
    "all three": "三者共同",
    "Partial results: # of # cells are not finished and are NaN.": "部分结果：# / # 个单元尚未完成，为 NaN。",
    # tables
    "What a call may cost": "一次调用值多少代价",
    "The trap of grpo": "grpo 的陷阱",
    "A cold start by imitation": "模仿学习的冷启动",
    "after # steps": "# 步之后",
    "without a reward offset": "无奖励偏移",
    "flawed verifier": "有缺陷的验证器",
    "half of the prompts": "一半题目",
    "half of the prompts trained": "一半题目参与训练",
    "after # steps without a KL penalty": "# 步之后，无 KL 惩罚",
    "The last four columns are call probabilities": "后四列为调用概率",
    "mean over seeds ± half-width of its # % interval.": "种子均值 ± 其 # % 区间的半宽。",
    "Mean over seeds ± half-width of its # % interval.": "种子均值 ± 其 # % 区间的半宽。",
    # claims
    "The lectures' claims": "讲座中的论断",
    "claim": "论断",
    "the lecture": "讲座",
    "ours [# % interval]": "我们的结果 [# % 区间]",
    "holds if": "成立条件",
    "verdict": "结论",
    "holds": "成立",
    "does not hold": "不成立",
    "undecided": "未定",
    "Of # claims hold: #; do not: #; undecided: #.": "# 条论断中，成立：#；不成立：#；未定：#。",
    "Ours: mean over seeds with its # % interval [low, high], of several entries the worst; differences are paired by "
    "seed. ± d: our mean is within d of the lecture's figure. Undecided: too few seeds, the interval reaches across "
    "the limit.": "我们的结果：种子均值及其 # % 区间 [下限, 上限]；多项时取最差的一项；差值按种子配对。± d："
    "我们的均值与讲座的数字相差不超过 d。未定：种子太少，区间跨越了界限。",
    "The lectures' figures are single runs or a few seeds; of tool use, on an arithmetic model that is not public and "
    "is reconstructed here: a claim is about sign and size.": "讲座的数字来自单次或少数种子的运行；"
    "工具使用部分所用的算术模型未公开，这里是重建的：论断只关乎符号与大小。",
    "low ≥ #": "下限 ≥ #",
    "low > #": "下限 > #",
    "high < #": "上限 < #",
    "high ≤ #": "上限 ≤ #",
    "# to #": "# 至 #",
    "about #": "约 #",
    "# times": "# 倍",
    "nearly always": "几乎总是",
    "down by a third": "减少三分之一",
    "rarely": "很少",
    "far above": "远高于",
    "hardly ever": "几乎从不",
    "at or below": "不高于",
    "never": "从不",
    "back to untrained": "回到未训练水平",
    "no trap": "没有陷阱",
    "hardly any": "几乎没有",
    "ahead": "领先",
    "unchanged": "不变",
    "mul1_1, mul2_1 and mul2_2 are nearly always called": "mul1_1、mul2_1 和 mul2_2 几乎总是调用",
    "mul1_1, mul2_1 and mul2_2 are still nearly always called": "mul1_1、mul2_1 和 mul2_2 仍几乎总是调用",
    "call probability at carry-free addition hardly moves (difference)": "无进位加法的调用概率几乎不变（差值）",
    "hardly moves": "几乎不变",
    "# (all prompts)": "#（全部题目）",
    "KL weight # holds the hack rate back (difference)": "KL 权重 # 抑制作弊率（差值）",
    "calls, as a ratio to those at cost #": "调用次数与代价 # 时之比",
    "add_0, add_1 and sub_0 are rarely called": "add_0、add_1 和 sub_0 很少调用",
    "accuracy is far above untrained (difference)": "准确率远高于未训练（差值）",
    "hardly ever calls (calls per problem)": "几乎从不调用（每题调用次数）",
    "accuracy is at or below untrained (difference)": "准确率不高于未训练（差值）",
    "grpo at cost #": "grpo，代价 #",
    "never calls (calls per problem)": "从不调用（每题调用次数）",
    "accuracy is back to untrained (difference)": "准确率回到未训练水平（差值）",
    "groups of equal outcome push against calling": "结果相同的组推动不调用",
    "and that outweighs the mixed groups (push in all)": "并且压过结果不同的组（总推动）",
    "no trap, accuracy is far above untrained (difference)": "没有陷阱，准确率远高于未训练（差值）",
    "call probability where the expert never called": "专家从不调用之处的调用概率",
    "hardly any progress in the first # steps (difference)": "前 # 步几乎没有进步（差值）",
    "SFT + RL is ahead of RL alone at # steps (difference)": "SFT + 强化学习在 # 步时领先仅强化学习（差值）",
    "SFT + RL at # steps is ahead of RL alone at # (difference)": "SFT + 强化学习 # 步领先仅强化学习 # 步（差值）",
    "RL alone beats SFT + RL at # steps (difference)": "仅强化学习在 # 步时胜过 SFT + 强化学习（差值）",
    "accuracy at # steps": "# 步时的准确率",
    "accuracy without a reward offset": "无奖励偏移时的准确率",
    "accuracy on very hard prompts": "很难题目的准确率",
    "none, learned, rloo and group": "none、learned、rloo 和 group",
    "learned, rloo, group and grpo": "learned、rloo、group 和 grpo",
    "spread between seeds with reward offset #, as a ratio to without": "奖励偏移 # 时种子间的离散程度与无偏移时之比",
    "unchanged by a reward offset (difference)": "不受奖励偏移影响（差值）",
    "grpo in groups of # at # samples a step": "grpo，每组 # 个、每步 # 个采样",
    "verifier repaired after step #": "验证器在第 # 步后修复",
    "the exploit spreads to unseen prompts (hack rate above untrained)": "漏洞扩散到未见过的题目（作弊率高于未训练）",
    # the page
    "Results": "结果",
    "Tables and claims": "表格与论断",
    "Explore": "探索",
    "Figures": "图",
    "Specs": "配置",
    "Provenance": "来源",
    "study": "实验",
    "metric": "指标",
    "along": "横轴",
    "by": "分组",
    "as": "显示为",
    "curves": "曲线",
    "map": "热图",
    "cells": "单元数",
    "hash of the spec": "配置的哈希值",
    "versions": "版本",
    "device kind": "设备类型",
    "seconds of training": "训练用时（秒）",
    "diverged": "发散",
    "unfinished": "未完成",
    "Point at the chart, or press the arrow keys in it, to read the values; click a name to hide it.": "指向图表"
    "（或在图表中按方向键）以读取数值；点击名称可隐藏。",
    "Values are means over seeds ± half-width of their # % t-interval, which bands show.": "数值为种子均值 ± 其 # % "
    "t 区间的半宽，即色带所示。",
}
