"""Identifiers, read digit by digit in Chinese: telephone, room, flight and train numbers, number
plates, passwords.

Each rule is linear in the length of the text: every repetition is bounded.
"""

import re

from services.frontend.text.chinese_numbers import COUNTED, START, called, cardinal, digits
from services.frontend.text.rules import Rule

_PLATES = "京津沪渝冀豫云辽黑湘皖鲁新苏浙赣鄂桂甘晋蒙陕吉闽贵粤青藏川宁琼港澳使"
_IS = r"(?:号码|号|码)?[ ]?(?:是|为|：|:|，|,)?[ ]?"
_NAMES = (
    "验证码|校验码|密码|邮编|编码|编号|编码|代码|区号|工号|学号|单号|订单号?|流水号|序列号|批号|合同号|身份证号?|"
    "护照号?|准考证号?|会员号|卡号|账号|帐号|账户|尾号|尾数|末四位|后四位|房号|门牌号?|车牌号?|航班号?|班次|车次|列车|"
    "座机|手机号?|电话号?|传真|热线|QQ号?|QQ群|微信号?|ID|PIN码?|口令|型号|货号|案号|档案号?|病历号|柜号|桌号|床号|"
    "股票|基金|动车|高铁|火车|飞机|口令码|取件码|取餐码|取餐号|提货码|提取码|邀请码|激活码|兑换码|识别码|动态码|确认码|"
    "授权码|条码|条形码|端口号?|群号|机号|分机号?|转|ISBN|邮政编码|号码|暗号|频道|信箱|邮箱|靓号|代号|波音|空客|国道|"
    "省道|县道|标致|默认|初始|[\u4e00-\u9fff]号码?(?=是|为|：|:)|短信[到至]|发送[到至]|编辑短信发|房间号?|教室|会议室|"
    "包厢|包间|包房|宿舍|病房|诊室|办公室|实验室|机房|柜台|登机口|展位|机位|车位|工位|座位号"
)
_ROOMS = (
    "室|房(?!子|屋|源|款|贷|价|产)|包间|包厢|包房|会议室|教室|病房|宿舍|寝室?|机房|办公室|客房|套房|诊室|实验室|展厅|"
    "展位|信箱|号房|号包|号会议|号教室|号病房|号宿舍|号寝室|号办公|号诊室|号展|号信箱|号厅|号柜|号机位|号车厢|国道|"
    "省道|县道|路(?:公交|车|公共|电车|巴士)?(?![0-9口])"
)
_NOT_COUNTED = (
    rf"(?![0-9]|[.,][0-9]|[ ]?(?:{COUNTED}|[百千万亿%％‰]|多[个人名年天次家条元]|余[个人名年天次家条元]|来[个人岁天]))"
)


def _letters_and_digits(match: re.Match[str]) -> str:
    return match["lead"] + digits(re.sub(r"(?<=[0-9])[ -](?=[0-9])", "", match["code"]))


def _landline(match: re.Match[str]) -> str:
    number, _, extension = match[0].partition("转")
    return digits(re.sub("[^0-9]", "", number)) + ("转" + digits(extension) if extension else "")


def _foreign(match: re.Match[str]) -> str:
    return f"加{digits(match['country'])}，" + called(re.sub(r"[^0-9]", "", match["number"]))


def _dashed(match: re.Match[str]) -> str:
    return "杠".join(digits(part) if len(part) > 2 else cardinal(part) for part in match[0].split("-"))


def _train(match: re.Match[str]) -> str:
    return match["letter"] + (digits(match["number"]) if len(match["number"]) > 2 else cardinal(match["number"]))


RULES: tuple[Rule, ...] = (
    (
        re.compile(
            r"(?<![A-Za-z])(?P<pages>[Pp]{1,2})\.?(?P<first>[0-9]{1,4})[-~–～](?P<last>[0-9]{1,4})(?![0-9A-Za-z])"
        ),
        lambda match: f"{match['pages']}{cardinal(match['first'])}到{cardinal(match['last'])}",
    ),
    (re.compile(rf"{START}\+(?P<country>[0-9]{{1,3}})[ -](?P<number>[0-9][0-9 -]{{5,14}}[0-9])(?![0-9])"), _foreign),
    (
        re.compile(rf"(?<![A-Za-z]){START}1[3-9][0-9](?:[0-9]{{8}}|[ -][0-9]{{4}}[ -][0-9]{{4}})(?![0-9]|\.[0-9])"),
        lambda match: called(re.sub("[ -]", "", match[0])),
    ),
    (
        re.compile(
            rf"{START}[(（]?0[0-9]{{2,3}}[)）]?[ -]?[2-9][0-9]{{2,3}}[ -]?[0-9]{{4}}(?:转[0-9]{{1,5}})?"
            rf"(?![0-9]|\.[0-9])"
        ),
        _landline,
    ),
    (
        re.compile(
            rf"{START}[48]00(?:-[0-9]{{3,4}}-[0-9]{{3,4}}|-[0-9]{{7}}|[ ][0-9]{{3}}[ ][0-9]{{4}}|[0-9]{{7}})"
            rf"(?![0-9]|\.[0-9])"
        ),
        _landline,
    ),
    (
        re.compile(
            r"(?P<lead>(?:电话|号码|联系|致电|传真|总机|客服|热线|"
            r"座机)[^0-9\n。！？；]{0,6})(?P<code>[2-9][0-9]{2,3}[ -][0-9]{4})(?![0-9])"
        ),
        _letters_and_digits,
    ),
    (
        re.compile(
            rf"(?P<lead>(?:拨打?|打|致电|呼叫|热线|电话|报警|急救|客服|银行|短信)(?:电话|热线|客服|了|过)?"
            rf"(?:是|：|:)?[ ]?)(?P<number>1[0-9]{{2}}(?:[0-9]{{2}})?|95[0-9]{{3,4}}|96[0-9]{{3,4}}){_NOT_COUNTED}"
        ),
        lambda match: match["lead"] + called(match["number"]),
    ),
    (
        re.compile(
            rf"{START}(?:1(?:10|19|20|22)(?=电话|热线|报警|急救|指挥)|(?<![/:.-])1"
            rf"(?:0086|0010|2306|2315)){_NOT_COUNTED}"
        ),
        lambda match: called(match[0]),
    ),
    (
        re.compile(
            rf"(?P<lead>(?:拨|电话|报警|火警|匪警|急救|求助|热线)[^\n。！？；]{{0,16}}?){START}"
            rf"(?P<number>1(?:10|19|20|22)){_NOT_COUNTED}"
        ),
        lambda match: match["lead"] + called(match["number"]),
    ),
    (
        re.compile(
            r"(?<![A-Za-z0-9])(?P<lead>[A-Z]{2}|[0-9][A-Z]|[A-Z](?=[0-9]{4}))(?P<code>[0-9]{3,4})(?=次|号?航班)"
        ),
        _letters_and_digits,
    ),
    (
        re.compile(
            rf"(?P<lead>[{_PLATES}][A-Z][ ·•-]?)(?P<code>(?=[A-Z]{{0,6}}[0-9])[A-Z0-9]{{4,6}}[学警挂港澳]?)"
            rf"(?![A-Za-z0-9])"
        ),
        lambda match: match["lead"].rstrip(" ·•-") + digits(match["code"]),
    ),
    (
        re.compile(
            r"(?<![A-Za-z0-9])(?P<letter>[GDCZTKLYS])(?P<number>[0-9]{1,4})(?=/[GDCZTKLYS]?[0-9]|次|号?列车|号?高铁|"
            r"号?动车|号?火车)"
        ),
        _train,
    ),
    (
        re.compile(
            rf"(?P<lead>(?:{_NAMES}){_IS})(?P<code>[A-Za-z]{{0,4}}[ -]?[0-9]{{3,}}"
            rf"(?:[ -][0-9]{{1,8}}){{0,6}}[A-Z]?){_NOT_COUNTED}"
        ),
        _letters_and_digits,
    ),
    (
        re.compile(
            rf"{START}[0-9]{{1,2}}(?:-[0-9]{{1,4}})?-[0-9]{{3,4}}(?=室|号房|房|户)|"
            rf"{START}[0-9]{{1,2}}-[0-9]{{1,2}}-[0-9]{{3,4}}(?![0-9-])"
        ),
        _dashed,
    ),
    (re.compile(rf"{START}[0-9]{{3,4}}(?=号?(?:{_ROOMS}))"), lambda match: digits(match[0])),
    (
        re.compile(
            rf"(?P<lead>[0-9一二三四五六七八九十A-Za-z](?:号楼|栋|幢|座|单元|号院|楼|"
            rf"层(?=[ ]?[0-9]{{3,4}}(?:[^\u4e00-\u9fff0-9]|[室房号]|$)))[ ]?)"
            rf"(?P<code>[0-9]{{3,4}}){_NOT_COUNTED}"
        ),
        _letters_and_digits,
    ),
    (re.compile(rf"(?<=[A-Za-z][ ])(?:19[89][0-9]|20[0-4][0-9]){_NOT_COUNTED}"), lambda match: digits(match[0])),
    (re.compile(rf"(?P<lead>[A-Za-z]{{1,24}})(?P<code>[0-9]{{3,}}[A-Z]?){_NOT_COUNTED}(?![a-z])"), _letters_and_digits),
    (re.compile(rf"(?P<lead>\b[A-Z]{{1,4}}[ -])(?P<code>[0-9]{{3,5}}){_NOT_COUNTED}(?![A-Za-z])"), _letters_and_digits),
    (
        re.compile(
            rf"{START}(?:985|211|996|315|618|58(?=同城)|360(?=安全|浏览|公司|杀毒|软件))"
            rf"(?=[、和高院大工工程的校晚会制活促，。安浏杀软公同])"
        ),
        lambda match: digits(match[0]),
    ),
    (re.compile(r"(?<![0-9.,:/-])0[0-9]{1,}(?![0-9.,:/-]|年|月|日|号|点|时|分|秒|后)"), lambda match: digits(match[0])),
    (
        re.compile(rf"{START}(?![0-9]{{1,12}}0000(?![0-9]))[0-9]{{9,36}}X?{_NOT_COUNTED}(?![A-Za-z])"),
        lambda match: digits(match[0]),
    ),
)
